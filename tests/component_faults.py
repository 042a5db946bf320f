"""Faults in the work of the agent's components, by the names that `health()` has for them.

All guarded work begins in `otel_gpu.runtime.supervision`: a step of a `Worker`, a block that a `Component` guards, and an item of
`Component.each`. A fault raises there, before the work begins. The product needs no hook for that.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest

from otel_gpu.runtime.supervision import Component, Worker

_EVERY = 3


class Fault:
    """Raises at the first of some calls and at every third from then on, until it is over."""

    def __init__(self, error: Exception) -> None:
        """Each fault has an error of a type of its own, for components log each type once."""
        self.error = error
        self.raised = 0
        self.is_over = False
        self._calls = 0
        self._lock = threading.Lock()

    def is_due(self) -> bool:
        """Count a call, and return whether it has to raise."""
        with self._lock:
            self._calls += 1
            due = self._calls % _EVERY == 1 and not self.is_over
            self.raised += due
            return due

    def into(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that raises when it is due."""

        @functools.wraps(method)
        def failing(*arguments: Any, **more: Any) -> Any:
            if self.is_due():
                raise self.error
            return method(*arguments, **more)

        return failing


def of_its_own_type(base: type[Exception], name: str, *arguments: object) -> Exception:
    """Return an error whose type no other fault has."""
    return type(name, (base,), {})(*arguments)


class ComponentFaults:
    """A fault for every component, made when its work first begins while faults are wanted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], Exception]) -> None:
        """`make` returns the error for a component of a name."""
        self._make = make
        self._faults: dict[str, Fault] = {}
        self._lock = threading.Lock()
        self.are_wanted = threading.Event()
        enter, each, made = Component.__enter__, Component.each, Worker.__init__
        faults = self

        def entering(component: Component) -> Component:
            if faults._is_due(component.name):
                _raise_in_block(sys._getframe(1), faults._faults[component.name].error)
            return enter(component)

        def for_each(component: Component, items: Iterable[Any], do: Callable[[Any], object]) -> int:
            return each(component, items, faults._failing_once(component.name, do))

        def making(worker: Worker, component: str, step: Callable[[], float | None], **more: Any) -> None:
            made(worker, component, faults._failing(component, step), **more)

        monkeypatch.setattr(Component, "__enter__", entering)
        monkeypatch.setattr(Component, "each", for_each)
        monkeypatch.setattr(Worker, "__init__", making)

    def raised(self) -> Counter[str]:
        """Return how often the work of each component raised."""
        with self._lock:
            return Counter({name: fault.raised for name, fault in self._faults.items()})

    def _failing(self, component: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*arguments: Any) -> Any:
            if self._is_due(component):
                raise self._faults[component].error
            return work(*arguments)

        return failing

    def _failing_once(self, component: str, do: Callable[[Any], object]) -> Callable[[Any], object]:
        """Return work that fails at the first try of some items: `each` tries a second time, and no more."""
        failing, tried = self._failing(component, do), list[object]()

        def trying(item: object) -> object:
            if any(one is item for one in tried):
                return do(item)
            try:
                return failing(item)
            except Exception:
                tried.append(item)
                raise

        return trying

    def _is_due(self, component: str) -> bool:
        if not self.are_wanted.is_set():
            return False
        with self._lock:
            fault = self._faults.setdefault(component, Fault(self._make(component)))
        return fault.is_due()


def _raise_in_block(frame: FrameType, error: Exception) -> None:
    """Have the first line of the `with` block that a frame is about to begin raise.

    `__enter__` itself cannot: the block's guard would not see it.
    """

    def trace(_frame: FrameType, _event: str, _argument: object) -> None:
        frame.f_trace = None
        raise error

    frame.f_trace = trace
    sys.settrace(lambda *_: None)  # a function that raises ends this by itself
