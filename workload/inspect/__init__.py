"""What a job is: parallelism, bytes by kind and pair, the critical path on an ideal network."""
