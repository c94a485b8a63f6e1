"""One file an algorithm: step tables of every collective."""
