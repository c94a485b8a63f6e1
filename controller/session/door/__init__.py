"""The door of a control port: a process that accepts connections, and limits unauthenticated ones in number and time."""
