"""Commands about several racks."""
