"""A trace -> communicators, matched operations, dependencies, durations: what the network sees of it."""
