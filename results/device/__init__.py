"""What the device's own counters say: increases, queues, reconciliation with what was sent."""
