"""The job and the fabric of a plan as inputs of other simulators, and their outputs read back. Pure."""
