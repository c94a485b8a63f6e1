"""What each command of `etloop` may be told: one module a command, cheap to import. `cli/commands` carries them out."""
