"""Cards: modelled ones in virtual time, and real ones behind sockets."""
