"""Values that parts hand to each other: assignment, run, records, topology, counters, capabilities."""
