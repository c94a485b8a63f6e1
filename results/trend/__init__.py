"""Change points in the history of a job over versions of the device: rank statistics with a permutation test."""
