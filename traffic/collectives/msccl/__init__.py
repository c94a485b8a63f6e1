"""MSCCL XML -> step tables."""
