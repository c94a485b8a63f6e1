"""A trace as its files have it, and the settings and findings that go with it. Takes nothing of other rooms here."""
