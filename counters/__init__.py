"""Readers of devices' counters, one road a file; what they have in common is `protocol`."""
