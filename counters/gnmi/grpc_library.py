"""Imports gRPC with its logging silenced. A shell: sets environment variables. Import gRPC from this module only."""

from __future__ import annotations

import os

# The library reads it once, on import. Its log lines would mix with a command's output; errors reach us as values.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Child processes do not use the connection.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

__all__ = ["grpc"]
