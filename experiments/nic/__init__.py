"""Measures the behaviour of a network card: experiments on one queue pair at a time, and the profile that they make."""
