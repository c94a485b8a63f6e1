"""Plans, captures and heat maps for a terminal."""
