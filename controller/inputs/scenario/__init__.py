"""scenario.yaml, one file per section."""
