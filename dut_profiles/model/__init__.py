"""Properties of a device, every value with its basis and source."""
