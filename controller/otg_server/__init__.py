"""The server of the Open Traffic Generator API: HTTPS in, runs over the rig's agents out."""
