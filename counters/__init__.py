"""Readers of devices' counters, one source a file; what they have in common is `protocol`."""
