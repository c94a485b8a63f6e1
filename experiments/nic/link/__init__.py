"""The link to a card: frames, the local end of a queue pair, figures with their intervals, and captures."""
