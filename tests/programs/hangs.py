"""Hangs: threads that wait for what does not come, and one for a device that does not get done.

Says "ready" when its threads hang; after a line of its input it gives the device work and waits for it, which takes as
long as MOCKCUDA_KERNEL_RULES says, and says before when it did.
"""

import os
import select
import sys
import threading
import time

import busy_sites


def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def sleeps_for_long():
    time.sleep(1000)


def reads_nothing():
    select.select([os.pipe()[0]], [], [])


def waits_for_the_device(work):
    launched = time.monotonic_ns()
    work.launch("takes_5ms")
    print(f'{{"event": "waiting", "launched": {launched}}}', flush=True)
    work.wait()


def main():
    work = busy_sites.Work() if len(sys.argv) > 1 else None
    for function in (waits_for_a_lock, sleeps_for_long, reads_nothing):
        threading.Thread(target=function, daemon=True).start()
    time.sleep(0.2)
    print('{"event": "ready"}', flush=True)
    for _ in sys.stdin:
        waits_for_the_device(work)
        print('{"event": "phase"}', flush=True)


if __name__ == "__main__":
    main()
