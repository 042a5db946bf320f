"""Threads that rest in every kind of Python frame, and a reporter that says where they stand.

Runs on CPython 3.8 and later. Prints one JSON line: the version, and for each thread its name, TID, ident and
frames, innermost first, as [name, filename, line, f_lasti, first line, argument counts, flags]; then waits for the end
of its input.
The first argument, where given, is an open descriptor of /proc, for a root that has none.
"""

import _thread
import json
import os
import sys
import threading
import time

from ways_to_call import WAYS

GATE = _thread.allocate_lock()
GATE.acquire()
PROC = int(sys.argv[1]) if len(sys.argv) > 1 else os.open("/proc", os.O_RDONLY)
TIDS = {}


def sleeping(call):
    time.sleep(10000)


SITUATIONS = [*WAYS.values(), sleeping]


def start(run):
    TIDS[_thread.get_ident()] = (run.__name__, threading.get_native_id())
    run(GATE.acquire)


def frames_of(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append([name, code.co_filename, frame.f_lineno, frame.f_lasti, code.co_firstlineno])
        found[-1] += [code.co_argcount, code.co_kwonlyargcount, code.co_flags]
        frame = frame.f_back
    return found


def truth():
    return {ident: frames_of(frame) for ident, frame in sys._current_frames().items() if ident in TIDS}


def is_asleep(tid):
    with open(os.open(f"{tid}/stat", os.O_RDONLY, dir_fd=PROC)) as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"


def report():
    """Wait until nothing moves any more, then say what is."""
    before, now, asleep = None, truth(), False
    while len(TIDS) <= len(SITUATIONS) or before != now or not asleep:
        time.sleep(0.05)
        # A thread that merely got no processor for a while is runnable, not asleep.
        asleep = all(is_asleep(tid) for _, tid in list(TIDS.values()))
        before, now = now, truth()
    threads = [
        {"name": TIDS[ident][0], "tid": TIDS[ident][1], "ident": ident, "frames": frames}
        for ident, frames in now.items()
    ]
    print(json.dumps({"version": list(sys.version_info[:3]), "threads": threads}), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.stack_size(1 << 20)
    TIDS[_thread.get_ident()] = ("main", threading.get_native_id())
    for run in SITUATIONS:
        threading.Thread(target=start, args=(run,), daemon=True).start()
    _thread.start_new_thread(report, ())
    GATE.acquire()
