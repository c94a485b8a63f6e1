"""Summary of a job: parallelism, bytes by kind and pair, critical path on an ideal network."""
