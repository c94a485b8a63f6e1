"""The link to a card: frames, our end of a queue pair, figures with their interval, and what is kept of it."""
