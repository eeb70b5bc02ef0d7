"""Probes: each sends traffic of its own and says how every packet or test ended."""
