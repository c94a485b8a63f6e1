"""What is known of a device, every value stated with its basis and source."""
