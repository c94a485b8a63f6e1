"""Trace -> communicators, matched operations, dependencies and durations."""
