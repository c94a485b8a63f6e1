"""Measures the behaviour of a network card: experiments on single queue pairs, and the profile of the results."""
