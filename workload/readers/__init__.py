"""Files, archives and JSON of every form in, `Trace` out."""
