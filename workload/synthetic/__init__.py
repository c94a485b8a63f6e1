"""Synthetic training steps and sweeps, as traces."""
