"""Conditions of a scenario over the figures: passed, failed or inconclusive."""
