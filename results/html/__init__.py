"""Pages: report.html of a run, of a sweep and of a comparison."""
