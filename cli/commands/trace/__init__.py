"""Commands that read or write traces."""
