"""Prove a step table by executing it: follow every byte, and check the result at every position."""
