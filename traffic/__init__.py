"""Traffic on the wire: collective step tables, the RoCEv2 engine and its ports, and the same engine in virtual time."""
