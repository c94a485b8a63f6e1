"""topology.yaml -> switches, links and ports, and the ways through them."""
