"""Lets CUDA builds of PyTorch run without a GPU."""
