"""What is derived from the log: tables that can be thrown away and rebuilt."""
