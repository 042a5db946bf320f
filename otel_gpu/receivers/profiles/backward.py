"""Who asked for the backward pass that runs on this thread? PyTorch's engine threads joined to their caller.

`backward()` runs on threads of PyTorch's own, which have no Python frames; the thread that called it waits inside
`torch::autograd::Engine::execute` meanwhile. While exactly one thread of a process waits there, whatever the
engine's threads do is done for it, and their stacks belong below its own. While several wait, nobody can tell for
which of them an engine's thread works, and its stacks stand alone. A thread of the engine that calls `backward()`
itself, as checkpointing does, waits on behalf of the caller it works for, and is no caller of its own.
"""

from __future__ import annotations

from ...signals.profiles import Frame, Stack, marker

BACKWARD = marker("[backward]")
_ENGINE_THREAD = "torch::autograd::Engine::thread_main"
_EXECUTE = "torch::autograd::Engine::execute("


class BackwardCallers:
    """The threads of one program that wait for a backward pass, and where. Owned by one thread."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[Stack]] = {}
        """By thread, outermost call first; a stack of the engine's own threads is empty."""

    def entered(self, tid: int, stack: Stack) -> None:
        """Note that a thread has called the engine."""
        # Calls that an exception ended, which no probe saw return, are not on the stack any more.
        outer = sum(_is(frame, _EXECUTE) for frame in stack[1:])
        calls = self._waiting.get(tid, [])[:outer]
        self._waiting[tid] = [*calls, () if _is_engines(stack) else stack]

    def left(self, tid: int) -> None:
        """Note that a thread's latest call is over."""
        calls = self._waiting.get(tid)
        if calls is not None:
            calls.pop()
            if not calls:
                del self._waiting[tid]

    def joined(self, tid: int, stack: Stack) -> Stack:
        """Return the stack of a thread, below its caller's when it is the engine's and the caller is certain."""
        if not self._waiting:
            return stack
        if tid in self._waiting and not any(_is(frame, _EXECUTE) for frame in stack):
            # An exception has ended what this thread waited for.
            del self._waiting[tid]
        callers = [calls[0] for calls in self._waiting.values() if calls[0]]
        if len(callers) != 1 or not _is_engines(stack):
            return stack
        return (*stack, BACKWARD, *callers[0])


def _is_engines(stack: Stack) -> bool:
    """Tell whether a thread began in the engine: a caller may enter the same function, but from its own call."""
    for frame in reversed(stack):
        if _is(frame, _EXECUTE):
            return False
        if _is(frame, _ENGINE_THREAD):
            return True
    return False


def _is(frame: Frame, function: str) -> bool:
    return frame.function.startswith(function)
