"""What a step table is, what it is written in, and how bytes are cut."""
