"""scenario.yaml, one file a section."""
