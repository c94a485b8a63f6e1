"""A rig on one Linux machine: namespaces joined by switches in software. Knows neither plans nor sessions."""
