"""Where the ranks of a plan are: on which hosts, and hosts on which ports."""
