"""Samplers: read counters that the kernel keeps, under an injected root."""
