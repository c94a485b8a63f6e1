"""From the figures of a run to named findings: rules, one file each, over the evidence of its tables."""
