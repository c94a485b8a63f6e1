"""The users of a rack: their rights and bounds, and reservations of ports."""
