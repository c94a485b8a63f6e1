"""Plan and records -> figures of operations, collectives and jobs."""
