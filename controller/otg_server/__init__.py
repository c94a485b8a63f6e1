"""The server of the Open Traffic Generator API: HTTPS and gRPC in, runs over the rig's agents out."""
