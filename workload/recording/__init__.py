"""From the events of a recorded script, rank by rank, to the nodes of a Chakra job. Pure."""
