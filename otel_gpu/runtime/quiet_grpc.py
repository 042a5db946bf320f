"""How is gRPC kept from writing to standard error by itself? `grpc`, imported from here alone.

What its core writes holds URLs whole, a proxy's password among them, and it is raw; reasons of failures come with the call.
The core reads the variable once, as it starts; the environment is then as before, for it is that of the program, too.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "GRPC_VERBOSITY"
_set_before = os.environ.get(_VARIABLE)
_is_ours = not _set_before and "grpc" not in sys.modules
if _is_ours:
    os.environ[_VARIABLE] = "NONE"
try:
    import grpc

    if _is_ours:
        # Some versions start their core at the first channel, and not as they are imported.
        grpc.insecure_channel("unix:/").close()
finally:
    if _is_ours:
        if _set_before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = _set_before

__all__ = ["grpc"]
