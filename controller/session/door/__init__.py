"""The door of a control port: a process that takes its connections, and bounds how many strangers hold and for how long."""
