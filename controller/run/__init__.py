"""A run from its inputs to its verdict: prepared, executed, written, expected, counted, decided."""
