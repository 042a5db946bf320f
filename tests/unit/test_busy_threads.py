"""A thread that computes on after its test is found; one that waits is not."""

from __future__ import annotations

import threading
import time

from tests.busy_threads import BusyThreads


def test_a_thread_that_computes_is_found_and_one_that_waits_is_not() -> None:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            pass

    threads = [threading.Thread(target=compute, name="computes"), threading.Thread(target=over.wait, name="waits")]
    looker = BusyThreads(share=0.05)
    for thread in threads:
        thread.start()
    try:
        assert looker.look() == []
        time.sleep(0.6)
        found = looker.look()
    finally:
        over.set()
        for thread in threads:
            thread.join()

    [one] = found
    assert one.startswith("computes used ")
    assert "in compute" in one
