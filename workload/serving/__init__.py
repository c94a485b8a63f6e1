"""A serving cluster as a state machine: requests and arrivals in, transfers out."""
