"""PyTorch execution traces and Kineto recordings -> rows of nodes."""
