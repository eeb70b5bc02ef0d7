"""The collector's own signed chain: what it planned, fixed and saw first, written before it takes effect."""

from collector.control.chain import Control, IssuedPlan
from collector.control.heads import TreeHeads
from collector.control.key import KeyFileError, load_or_create_key

__all__ = ["Control", "IssuedPlan", "KeyFileError", "TreeHeads", "load_or_create_key"]
