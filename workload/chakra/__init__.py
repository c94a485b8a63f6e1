"""Chakra protobuf: columns to nodes, and nodes to bytes."""
