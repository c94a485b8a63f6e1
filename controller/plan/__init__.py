"""Scenario and rig -> who sits where, what is sent on which connection, assignments of agents. Pure."""
