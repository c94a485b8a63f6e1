"""Placement of the ranks of a plan on hosts, and of hosts on ports."""
