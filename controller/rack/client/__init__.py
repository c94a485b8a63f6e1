"""The client side of the rack API, for programs, test suites and commands."""
