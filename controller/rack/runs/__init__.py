"""The process of a run: started, spoken to, confined, and what it does."""
