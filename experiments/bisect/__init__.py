"""Bisection of a list of versions of the device: installs, runs, and the first version that is worse."""
