"""Sockets: of ZeroMQ in the event loop, and of a lab by a path that always fits."""
