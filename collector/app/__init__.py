"""The composition root: builds every part of the collector and knows the order of start and stop; nothing else does."""

from collector.app.collector import run

__all__ = ["run"]
