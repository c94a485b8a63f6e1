"""Training steps and sweeps that are made up, as traces."""
