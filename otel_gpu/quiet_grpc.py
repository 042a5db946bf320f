"""How is gRPC kept from writing to standard error by itself? `grpc`, imported from here alone.

What its core writes holds URLs whole, a proxy's password among them, and it is raw; reasons of failures come with the call.
The core reads the variable as it starts.
"""

from __future__ import annotations

import os

if not os.environ.get("GRPC_VERBOSITY"):
    os.environ["GRPC_VERBOSITY"] = "NONE"

import grpc

__all__ = ["grpc"]
