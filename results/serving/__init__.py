"""Figures and pages of serving runs."""
