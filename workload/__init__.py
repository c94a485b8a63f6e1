"""Execution traces in, rank programs out: bytes -> nodes -> communicators -> what the network sees.

Does not know rigs or agents.
"""
