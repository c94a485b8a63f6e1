"""The protocol of all readers of counters, with their addresses and credentials."""
