"""The command `etloop`: arguments in, text or JSON and an exit code out."""
