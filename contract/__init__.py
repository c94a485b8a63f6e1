"""Definitions that all rooms share: units, errors, the clock, states of a run, messages, record schemas. Imports no other room."""
