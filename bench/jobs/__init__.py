"""Whole jobs: how fast their recordings are read, what a job takes on paper, and an incast under every control."""
