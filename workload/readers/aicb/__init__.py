"""Workloads that AICB writes, as text for SimAI and as CSV, to the ranks of a job."""
