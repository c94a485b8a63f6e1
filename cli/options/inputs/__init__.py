"""Command lines of what serves a rack and asks it."""
