"""The inputs of a run, as one archive that repeats it."""
