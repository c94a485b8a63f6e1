"""Units, errors, the clock, IP addresses and YAML text with positions: what every value is written in."""
