"""Run directories on disk: written whole, read back, and as arrow tables and frames."""
