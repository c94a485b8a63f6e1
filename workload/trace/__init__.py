"""Traces as read from files, with the settings and findings that go with them. Imports no other room of workload."""
