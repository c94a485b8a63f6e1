"""One run over agents: the pure decision of the next actions, and the event loop and sockets around it."""
