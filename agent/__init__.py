"""The agent: measures on one node, signs what it measured, and keeps it until the collector has it."""
