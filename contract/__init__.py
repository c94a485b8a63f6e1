"""Definitions that all rooms share: units, errors, clock, states of a run, messages, record schemas. Imports no other room."""
