"""Prove a step table by executing it: which bytes move, and what must be where in the end."""
