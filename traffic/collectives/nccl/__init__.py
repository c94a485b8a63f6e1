"""NCCL's own choice and shape of a collective: its published tuning model, channels, chunks."""
