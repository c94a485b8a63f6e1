"""Joins a controller, loads an assignment, owns one engine and streams its records back."""
