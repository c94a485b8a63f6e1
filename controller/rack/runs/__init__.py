"""The process of a run: its start, its messages, its confinement, and its work."""
