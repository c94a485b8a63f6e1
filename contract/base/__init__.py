"""Units, errors, the clock, IP addresses, YAML text with positions, and typed access to the keys of files."""
