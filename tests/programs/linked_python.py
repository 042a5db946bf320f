"""Launches in linked_python.c's interpreter from several kinds of calls, each with a kernel of its own, and says where.

Runs on CPython 3.8 and later, without modules of the standard library's in C that are files: says "ready", loads its
kernels when a line comes, and launches when another does. The event's stacks are {kernel: [[name, file, line], ...]}, innermost first.
"""

import functools
import sys
import threading

import linked

NAMES = [f"{way}_{mode}" for way in ("plain", "from_c", "generator", "thread") for mode in ("held", "released")]
HANDLES = {}
STACKS = {}


def launch(way):
    for mode in ("held", "released"):
        name = way + "_" + mode
        python, failed = frames_of(sys._getframe()), linked.launch(HANDLES[name], mode == "released")
        assert not failed, "the launch failed"
        STACKS[name] = python


def frames_of(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def from_c():
    sorted([2, 1], key=functools.cmp_to_key(lambda a, b: launch("from_c") or a - b))


def generator():
    def items():
        yield launch("generator")

    list(items())


def say(event, **more):
    words = ", ".join(f'"{key}": {value}' for key, value in {"event": f'"{event}"', **more}.items())
    print("{" + words + "}", flush=True)


def run():
    say("ready")
    sys.stdin.readline()
    HANDLES.update(zip(NAMES, linked.load(NAMES)))
    say("loaded")
    sys.stdin.readline()
    launch("plain")
    from_c()
    generator()
    thread = threading.Thread(target=launch, args=("thread",))
    thread.start()
    thread.join()
    say("phase", stacks=repr(STACKS).replace("'", '"'))
    sys.stdin.readline()


run()
