"""The devices of `etloop demo`: two agents over loopback addresses, or a soft switch with an agent per port."""
