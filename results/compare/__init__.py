"""Two sets of runs -> what is better, worse or the same, with intervals."""
