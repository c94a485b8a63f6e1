"""Parts of `python -m etloop.bench.soak`: kinds of jobs, what is looked at, and what of it grew."""
