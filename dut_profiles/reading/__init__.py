"""Reads profile files, and reports every mistake at its line."""
