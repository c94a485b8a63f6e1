"""The other side of the rack API: programs, test suites, commands."""
