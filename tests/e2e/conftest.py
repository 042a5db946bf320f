"""Root and a kernel with uprobes, which everything end to end needs, and the Collector that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cpythons import Interpreter
from tests.e2e.collector import Collector
from tests.e2e.requests import Observer

pytest.register_assert_rewrite("tests.e2e.comparison")

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.root)
        callspec = getattr(item, "callspec", None)
        interpreter = callspec.params.get("interpreter") if callspec else None
        if isinstance(interpreter, Interpreter) and not interpreter.is_in_short:
            item.add_marker(pytest.mark.every_python)


@pytest.fixture(scope="session")
def running_collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """The one that all tests of a process send to: a start takes longer than most of them."""
    with Collector(tmp_path_factory.mktemp("collector")) as collector:
        yield collector


@pytest.fixture
def collector(running_collector: Collector) -> Collector:
    """A Collector that returns nothing of what tests before this one sent."""
    running_collector.forget()
    return running_collector


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    """What the programs of a file are followed by, one after another."""
    with Observer() as observer:
        yield observer
