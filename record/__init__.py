"""Runs a PyTorch training script without a GPU, rank by rank, and writes its operations as a Chakra job."""
