"""Placement of the engine's threads on cores, and clearing of cores for them."""
