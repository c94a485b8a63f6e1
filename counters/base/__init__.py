"""What every reader of counters is and needs: its protocol, addresses, credentials."""
