"""One run over agents: a pure decision of what happens next, and the event loop and sockets around it."""
