"""Chakra protobuf: nodes of columns, and bytes of nodes."""
