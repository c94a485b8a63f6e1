"""`etloop bench`: the engine's speed beside the bare kernel's, on this machine."""
