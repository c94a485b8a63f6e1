"""The commands of `etloop`: most have a module of their own name."""
