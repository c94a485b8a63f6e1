"""Scenario and rig in, run directory out: plan, partition, run session and the command line."""
