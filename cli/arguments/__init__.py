"""Argument groups and argument types that several commands share. Cheap to import: `--help` loads them."""
