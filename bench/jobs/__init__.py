"""Whole jobs: how fast their recordings are read, and what a job takes on paper from end to end."""
