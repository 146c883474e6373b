"""Estimates: speed, work left, waits, interruptions, transfers. Pure."""
