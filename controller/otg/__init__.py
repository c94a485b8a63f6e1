"""Configurations of the Open Traffic Generator API as ports, queue pairs and flows of a rig. Pure."""
