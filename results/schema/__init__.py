"""The figures of a run directory as typed values: the contents of summary.json, kpis.json and tables."""
