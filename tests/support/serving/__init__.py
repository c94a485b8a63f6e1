"""Clusters of tests."""
