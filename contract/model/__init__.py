"""Values that rooms pass to each other: assignment, run, records, topology, counters, capabilities."""
