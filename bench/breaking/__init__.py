"""A rack with injected faults, for `random_faults`."""
