"""Profile files -> profiles, with every mistake at its line."""
