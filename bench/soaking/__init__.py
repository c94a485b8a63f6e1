"""Parts of `python -m etloop.bench.soak`: kinds of jobs, sampled figures, and the judgement of their growth."""
