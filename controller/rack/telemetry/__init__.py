"""Metrics and health of a rack: HTTP, Prometheus, OpenTelemetry."""
