"""The device's own counters: increases, queues, losses, reconciliation with the agents' counts."""
