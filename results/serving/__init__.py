"""Figures and files of serving runs."""
