"""A serving cluster as a state machine: requests and arrivals in, transfers between ranks out. Pure."""
