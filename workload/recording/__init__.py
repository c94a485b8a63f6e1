"""From what a recorded script did, rank by rank, to the nodes of a Chakra job. Pure."""
