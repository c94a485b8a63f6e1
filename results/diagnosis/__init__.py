"""From the figures of a run to named findings."""
