"""Everything wrong or remarkable about a trace, in one report; and named rules that fix it."""
