"""Readers of devices' counters: all sources behind one protocol."""
