"""Readers of AICB workloads, as text for SimAI and as CSV, into the ranks of a job."""
