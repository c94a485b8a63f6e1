"""Units, errors, the clock, IP addresses and YAML text with positions: what values are written in, and what readers ask for."""
