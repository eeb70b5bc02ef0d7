"""Reads only: metrics, HTTP, tables."""
