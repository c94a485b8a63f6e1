"""A rack that is broken on purpose, for `random_faults`."""
