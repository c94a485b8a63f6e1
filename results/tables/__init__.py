"""Arrow tables and frames of what a run counted."""
