"""Which span is current in this thread, at every moment? Told as the SDK changes it, and as CPython changes a thread's context.

A thread that runs an event loop works for one task after another, each with a context of its own. CPython tells of that from
3.14 on (PyContext_AddWatcher); before, what is told of a thread would be another task's span, so that nothing is.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext

from .library import Library

_FIRST = (3, 14)
_WATCHER = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object)
_watching: list[Any] = []
"""What CPython calls, while it may."""


def follow(library: Library) -> str:
    """Have each thread's current span published; return why not, or nothing. Once is enough."""
    if _watching:
        return ""
    if sys.implementation.name != "cpython" or sys.version_info < _FIRST:
        return "only CPython 3.14 and later tells of the switches between tasks"
    if "gevent" in sys.modules:
        return "gevent switches between greenlets without telling CPython"
    runtime = type(context._RUNTIME_CONTEXT)  # noqa: SLF001 - the API has no hook
    if runtime is not ContextVarsRuntimeContext:
        return f"OpenTelemetry keeps its context elsewhere, in {runtime.__name__}"
    show = _showing(library)

    def switched(_event: int, _context: object) -> int:
        show()
        return 0

    watcher = _WATCHER(switched)
    try:
        number = ctypes.pythonapi.PyContext_AddWatcher(watcher)
    except RuntimeError as e:  # eight others watch
        return f"CPython does not tell of switches: {e}"
    _watching.append(watcher)
    atexit.register(ctypes.pythonapi.PyContext_ClearWatcher, number)
    # Of the class, so that observers of the object find it as it is.
    for name in ("attach", "detach"):
        setattr(runtime, name, _shown_after(getattr(runtime, name), show))
    show()
    return ""


def _showing(library: Library) -> Callable[[], None]:
    publish_span, publish_no_span = library.publish_span, library.publish_no_span
    current = trace.get_current_span

    def show() -> None:
        ids = current().get_span_context()
        if ids.is_valid:
            publish_span(
                ids.trace_id.to_bytes(16, "big") + ids.span_id.to_bytes(8, "big") + bytes((ids.trace_flags & 255,))
            )
        else:
            publish_no_span()

    return show


def _shown_after(method: Callable[..., Any], show: Callable[[], None]) -> Callable[..., Any]:
    @wraps(method)
    def changed(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        finally:
            show()

    return changed
