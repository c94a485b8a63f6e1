"""Scenario and rig -> placement of ranks, connections with their bytes, assignments of agents. Pure."""
