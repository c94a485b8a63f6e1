"""The figures of a run directory as typed values: what summary.json, kpis and tables may hold."""
