"""What a run was made of, as one archive that repeats it."""
