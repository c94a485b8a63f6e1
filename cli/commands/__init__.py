"""The commands of `etloop`, one module each, named as the command (see `cli/parser.py`)."""
