"""Arrow tables and frames of the records and counters of a run."""
