"""A training script whose workers multiprocessing starts. Argument: how, such as spawn.

It launches 11 times itself, and two workers 22 and 33 times, once a line is read; all wait for another line before they end.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from multiprocessing.synchronize import Barrier

from ctypes_calls import launch_attend


def work(times: int, barrier: Barrier) -> None:
    """Launch, and stay until all may end."""
    launch_attend(times)
    barrier.wait()
    barrier.wait()


if __name__ == "__main__":
    print('{"event": "ready"}', flush=True)
    sys.stdin.readline()
    context = multiprocessing.get_context(sys.argv[1])
    barrier = context.Barrier(3)
    workers = [context.Process(target=work, args=(times, barrier)) for times in (22, 33)]
    for worker in workers:
        worker.start()
    launch_attend(11)
    barrier.wait()
    print(json.dumps({"event": "phase", "pids": [os.getpid(), *(w.pid for w in workers)]}), flush=True)
    sys.stdin.readline()
    barrier.wait()
    for worker in workers:
        worker.join()
