"""The throughput slots of this node's plan: run at their time, or recorded as not run, each exactly once."""

from agent.schedule.hold import Hold, pause_of_plan
from agent.schedule.journal import FileJournal
from agent.schedule.runner import SlotRunner

__all__ = ["FileJournal", "Hold", "SlotRunner", "pause_of_plan"]
