"""Access to the machine for agent and controller: signals, clocks, keys, brokers, memory, child processes."""
