"""The collector: keeps what agents signed, plans what they measure, and says what the log shows."""
