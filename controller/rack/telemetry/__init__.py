"""Figures of a rack: HTTP, Prometheus, OpenTelemetry."""
