"""Key performance indicators of jobs and of the network."""
