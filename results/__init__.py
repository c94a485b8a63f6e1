"""What a run left, made into figures and tables. Works on a run directory alone."""
