"""Benches: ``python -m tests.bench NAME [--quick]``. Not collected by pytest."""
