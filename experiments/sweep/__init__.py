"""sweep.yaml -> points, their runs, one index."""
