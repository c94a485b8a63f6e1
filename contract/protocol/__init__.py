"""Messages between controller and agents, their bytes, and the state tables of both sides."""
