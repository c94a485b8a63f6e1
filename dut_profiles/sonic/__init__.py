"""SONiC's configuration -> a profile, a topology, and an account of everything read."""
