"""Tables and sentences of reports: typed columns, rows and notes, for every form of output."""
