"""The throughput slots of this node's plan: run at their time, or recorded as not run, each exactly once."""

from agent.schedule.journal import FileJournal, Journal, MemoryJournal
from agent.schedule.runner import Engine, SlotRunner
from agent.schedule.timing import SlotTimes, decide, slot_times

__all__ = ["Engine", "FileJournal", "Journal", "MemoryJournal", "SlotRunner", "SlotTimes", "decide", "slot_times"]
