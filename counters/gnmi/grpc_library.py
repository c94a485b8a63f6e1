"""gRPC, made quiet before it is loaded. A shell: the environment. Everybody here imports it from this module."""

from __future__ import annotations

import os

# Read once, when the library is loaded. Its own log lines would stand between a command's, and errors reach us as values.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Programs that are started beside a connection need nothing of it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

__all__ = ["grpc"]
