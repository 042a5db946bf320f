"""What of publishing cannot be done in Python? A variable of each thread's own, and stores that keep their order: `published.c`."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from ..errors import OtelGpuError

PATH = Path(__file__).parent / "lib" / "libotelgpu_context.so"


class Library:
    """The library, loaded. OtelGpuError where it is not there or not for this machine."""

    def __init__(self) -> None:
        try:
            # Of this kind as none of it waits: letting others run meanwhile would cost more than the call.
            library = ctypes.PyDLL(str(PATH))
        except OSError as e:
            raise OtelGpuError(
                f"cannot load {PATH}: {e}; install a wheel for this platform, or run `make setup`"
            ) from e
        self._publish_process = library.otel_gpu_publish_process
        self._publish_process.argtypes = (ctypes.c_char_p, ctypes.c_uint32)
        self.publish_span = library.otel_gpu_publish_span
        """Takes the trace's id, the span's and the trace's flags, in 25 bytes: what this thread's current span is."""
        self.publish_span.argtypes = (ctypes.c_char_p,)
        self.publish_span.restype = None
        self.publish_no_span = library.otel_gpu_publish_no_span
        self.publish_no_span.argtypes = ()
        self.publish_no_span.restype = None

    def publish_process(self, payload: bytes) -> None:
        """Replace what the process says of itself."""
        if error := self._publish_process(payload, len(payload)):
            raise OtelGpuError(f"cannot publish the process's context: {os.strerror(error)}")
