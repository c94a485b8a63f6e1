"""Units, errors, the clock, IP addresses, YAML text with positions, and the questions that readers of files ask."""
