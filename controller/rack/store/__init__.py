"""Jobs in SQLite, run directories, their retention and locks."""
