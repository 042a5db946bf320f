"""Who asked for the backward pass that runs on this thread? PyTorch's engine threads joined to their caller.

`backward()` runs on threads of PyTorch's own, which have no Python frames; the thread that called it waits inside
`torch::autograd::Engine::execute` meanwhile. While exactly one thread of a process waits there, whatever the
engine's threads do is done for it, and their stacks belong below its own. While several wait, nobody can tell for
which of them an engine's thread works, and its stacks stand alone. A thread of the engine that calls `backward()`
itself, as checkpointing does, waits on behalf of the caller it works for, and is no caller of its own.
"""

from __future__ import annotations

from ..profiles import Frame, Stack, marker

BACKWARD = marker("[backward]")
_ENGINE_THREAD = "torch::autograd::Engine::thread_main"
_EXECUTE = "torch::autograd::Engine::execute"
_ROOT_FRAMES = 12
"""How far from its start a thread of the engine enters the engine."""


class BackwardCallers:
    """The threads of one program that wait for a backward pass, and where. Owned by one thread."""

    def __init__(self) -> None:
        self._waiting: dict[int, Stack] = {}
        """By thread; empty for a thread of the engine's own."""

    def entered(self, tid: int, stack: Stack) -> None:
        """Note that a thread has called the engine."""
        self._waiting[tid] = () if _is_engines(stack) else stack

    def left(self, tid: int) -> None:
        """Note that a thread's call is over."""
        self._waiting.pop(tid, None)

    def joined(self, tid: int, stack: Stack) -> Stack:
        """Return the stack of a thread, below its caller's when it is the engine's and the caller is certain."""
        if not self._waiting:
            return stack
        if self._waiting.get(tid):
            if not any(_is(frame, _EXECUTE) for frame in stack):
                # An exception ended the call, which no probe on a return sees.
                self.left(tid)
            return stack
        callers = [caller for caller in self._waiting.values() if caller]
        if len(callers) != 1 or not _is_engines(stack):
            return stack
        return (*stack, BACKWARD, *callers[0])


def _is_engines(stack: Stack) -> bool:
    return any(_is(frame, _ENGINE_THREAD) for frame in stack[-_ROOT_FRAMES:])


def _is(frame: Frame, function: str) -> bool:
    return frame.function.startswith(function)
