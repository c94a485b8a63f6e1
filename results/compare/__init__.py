"""Comparison of two sets of runs: better, worse or no difference, with confidence intervals."""
