"""Step tables: their definition, how algorithms write them, and how bytes are cut."""
