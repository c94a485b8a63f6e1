"""What agent and controller both need of the machine: signals, clocks, keys, brokers, memory, processes of ours."""
