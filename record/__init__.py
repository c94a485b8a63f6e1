"""Runs a PyTorch training script without a GPU, rank by rank, and makes a Chakra job of what it did."""
