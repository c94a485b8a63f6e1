"""Qualification of a fabric: short steps over all ports of a rig, their measurements, and the parts that they name."""
