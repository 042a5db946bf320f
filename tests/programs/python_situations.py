# The odd ways of calling are the point, and 3.8 must run them.
# ruff: noqa: B018, C417, PLC3002, PLW0108, RET503, RET504, UP028, UP033
"""Threads that rest in every kind of Python frame, and a reporter that says where they stand.

Runs on CPython 3.8 and later. Prints one JSON line: the version, and for each thread its name, TID, ident and
frames, innermost first, as [name, filename, line, f_lasti, first line, argument counts, flags]; then waits for the end
of its input.
The first argument, where given, is an open descriptor of /proc, for a root that has none.
"""

import _thread
import asyncio
import ctypes
import functools
import json
import os
import sys
import threading
import time

GATE = _thread.allocate_lock()
GATE.acquire()
PROC = int(sys.argv[1]) if len(sys.argv) > 1 else os.open("/proc", os.O_RDONLY)
SITUATIONS = {}
TIDS = {}


def situation(run):
    SITUATIONS[run.__name__] = run
    return run


@situation
def nested():
    def outer(x):
        return inner(x + 1)

    def inner(x):
        GATE.acquire()
        return x

    outer(1)


@situation
def recursion():
    def down(n):
        if n:
            return down(n - 1)
        GATE.acquire()

    down(150)


@situation
def generators():
    def leaf():
        GATE.acquire()
        yield 1

    def middle():
        yield from leaf()

    def top():
        for x in middle():
            yield x

    for _ in top():
        pass


@situation
def generator_run_by_c():
    def items():
        yield 1
        GATE.acquire()
        yield 2

    list(items())


@situation
def coroutines():
    async def source():
        yield 1
        GATE.acquire()
        yield 2

    async def consume():
        async for _ in source():
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(consume(), asyncio.sleep(0))

    asyncio.new_event_loop().run_until_complete(main())


@situation
def lambdas():
    (lambda f: f())(lambda: GATE.acquire())


@situation
def comprehension():
    [GATE.acquire() for _ in range(1)]


@situation
def nested_comprehension_in_lambda():
    list(map(lambda n: {k: GATE.acquire() for k in range(n)}, [1]))


@situation
def class_body():
    class Body:
        value = GATE.acquire()


@situation
def executed():
    source = "def made():\n\n    GATE.acquire()\n\nmade()\n"
    exec(compile(source, "<made at run time>", "exec"), {"GATE": GATE})


@situation
def unicode_names():
    for name in ("caf\xe9", "\u0444\u0443\u043d\u043a\u0446\u0438\u044f", "\U00020000\U00020001", "plain"):
        source = f"def {name}(then):\n    then()\n"
        scope = {}
        exec(compile(source, f"/tmp/{name}.py", "exec"), scope)
        unicode_names.then = functools.partial(scope[name], getattr(unicode_names, "then", GATE.acquire))
    unicode_names.then()


@situation
def long_function():
    lines = ["def long(gate):", "    x = 0"]
    lines += [f"    x += {n}" for n in range(300)]
    lines += [""] * 400
    lines += ["    x = max(", "        x,", *[""] * 150, "        gate(", "            ),", "    )", "    return x"]
    scope = {}
    exec(compile("\n".join(lines), "long.py", "exec"), scope)
    scope["long"](GATE.acquire)


@situation
def multi_line_call():
    def taking(*arguments, **named):
        pass

    taking(
        1,
        (
            2,
            GATE.acquire(),
        ),
        last=[
            3,
        ],
    )


@situation
def warm_init():
    class Thing:
        def __init__(self, rest):
            if rest:
                GATE.acquire()

    for n in range(3000):
        Thing(n == 2999)


@situation
def warm_attributes():
    class Thing:
        rest = False

        @property
        def value(self):
            return self[0]

        def __getitem__(self, key):
            return self.missing

        def __getattr__(self, name):
            if self.rest:
                GATE.acquire()
            return 1

    thing = Thing()
    for n in range(3000):
        thing.rest = n == 2999
        thing.value


@situation
def finalizer():
    class Thing:
        def __del__(self):
            GATE.acquire()

    thing = Thing()
    del thing


@situation
def c_calls_python():
    class Item:
        def __lt__(self, other):
            return functools.reduce(lambda a, b: GATE.acquire(), [1, 2])

    sorted([Item(), Item()], key=lambda item: item)


@situation
def ctypes_callback():
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def compare(a, b):
        GATE.acquire()
        return 0

    ctypes.CDLL(None).qsort((ctypes.c_int * 2)(2, 1), 2, 4, signature(compare))


@situation
def exception_handling():
    def fail():
        try:
            raise ValueError
        except ValueError:
            with _thread.allocate_lock():
                try:
                    return 1
                finally:
                    GATE.acquire()

    fail()


@situation
def traced():
    def trace(frame, event, argument):
        if frame.f_code is body.__code__ and event == "line" and frame.f_lineno == body.__code__.co_firstlineno + 2:
            GATE.acquire()
        return trace

    def body():
        a = 1
        return a

    sys.settrace(trace)
    body()


@situation
def profiled():
    def profile(frame, event, argument):
        if event == "call" and frame.f_code is body.__code__:
            GATE.acquire()

    def body():
        return 1

    sys.setprofile(profile)
    body()


@situation
def sleeping():
    time.sleep(10000)


class Method:
    @classmethod
    def of_class(cls):
        return cls().of_instance()

    def of_instance(self):
        return self.of_nobody()

    @staticmethod
    @functools.lru_cache(maxsize=None)
    def of_nobody():
        GATE.acquire()


@situation
def methods():
    Method.of_class()


def start(run):
    TIDS[_thread.get_ident()] = (run.__name__, threading.get_native_id())
    run()


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
    for run in SITUATIONS.values():
        threading.Thread(target=start, args=(run,), daemon=True).start()
    _thread.start_new_thread(report, ())
    GATE.acquire()
