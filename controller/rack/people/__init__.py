"""Who may ask what of a rack, and when its ports are kept for somebody."""
