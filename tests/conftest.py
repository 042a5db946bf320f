"""Which tests can run here, and what do they leave behind? Those marked `root` skip without root, saying so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.busy_threads import BusyThreads

_BUSY = BusyThreads()


@pytest.fixture(scope="module", autouse=True)
def no_thread_stays_busy() -> Iterator[None]:
    yield
    if busy := _BUSY.look():
        pytest.fail("threads of earlier tests are still busy: " + "\n".join(busy), pytrace=False)


# The command ignores further signals once it has been stopped, since its process is about to end; pytest's worker goes on, and
# what it starts afterwards would inherit that.
@pytest.fixture(scope="module", autouse=True)
def signals_end_the_worker_again() -> Iterator[None]:
    earlier = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)


# Last, so that marks which the conftests below add are seen.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root, to load BPF programs and attach uprobes")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)
