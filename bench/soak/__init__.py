"""Many runs back to back: does anything grow? `python -m etloop.bench.soak` (`__main__` has its options)."""
