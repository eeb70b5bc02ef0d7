"""The durable log of signed bytes: append-only day files and a header index that outlives payloads."""
