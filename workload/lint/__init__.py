"""Report of all errors and remarks about a trace, and named rules that fix it."""
