"""Descriptions of devices under test."""
