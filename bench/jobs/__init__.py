"""Whole jobs: the speed of reading their recordings, the cost of planning a job, and an incast under every congestion control."""
