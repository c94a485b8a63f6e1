"""`etloop bench`: the engine's speed compared with the bare kernel's, on this machine."""
