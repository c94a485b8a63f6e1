"""The network of a simulator outside ETLoop: requests as lines of JSON in, completions of transfers out. Pure."""
