# The odd ways of calling are the point, and 3.8 must run them.
# ruff: noqa: E731, PLC3002, UP028, UP033
"""Launches from every kind of stack, each with a kernel of its own, and says where each was made.

Runs on CPython 3.8 and later: python_launches.py HELPER LATE (two copies of native_truth.c's library). Says "ready",
then does what each line of its input names: "load" maps LATE and loads the kernels, "launch" runs every situation, "fork" does so in a
child, "exec" becomes this program again. The answer is an event with the stacks: {kernel: {"python": [[name, file,
line], ...], "native": [address, ...]}}, innermost first; native frames begin in `launch_here`.
"""

import asyncio
import ctypes
import functools
import json
import os
import signal
import sys
import threading

HELPER, LATE = sys.argv[1:3]
CU = ctypes.CDLL("libcuda.so.1")
CONTEXT = ctypes.c_void_p()
SITUATIONS = {}
MODES = ("released", "held")
HANDLES = {}
STACKS = {}
KEPT = []  # code objects, so that their names can still be read when all is over
_DEPTH = 4096
_HOT = 6000


class Library:
    """The helper, called with the GIL released and with it held."""

    def __init__(self, path):
        self.modes = {"released": ctypes.CDLL(path), "held": ctypes.PyDLL(path)}
        for library in self.modes.values():
            library.launch_here.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]

    def __getattr__(self, name):
        return getattr(self.modes["released"], name)


CALLBACK = ctypes.CFUNCTYPE(None)
LAUNCH = ctypes.cast(CU.cuLaunchKernel, ctypes.c_void_p).value
HERE = Library(HELPER)


def situation(run):
    SITUATIONS[run.__name__] = run
    return run


def frames_of(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        KEPT.append(code)
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def remember(kernel, python, native, depth):
    assert depth > 0, "the launch failed, or its stack could not be told"
    STACKS[kernel] = {"python": python, "native": list(native[:depth])}


def launch(name, library=None):
    """Launch with the GIL released, then with it held."""
    check(CU.cuCtxSetCurrent(CONTEXT))
    for mode, helper in (library or HERE).modes.items():
        kernel = name + "_" + mode
        native, call = (ctypes.c_void_p * _DEPTH)(), helper.launch_here
        # One line: a frame is where its innermost call is.
        python, depth = frames_of(sys._getframe()), call(LAUNCH, HANDLES[kernel], native, _DEPTH)
        remember(kernel, python, native, depth)


@situation
def nested():
    def outer(x):
        return inner(x + 1)

    def inner(x):
        launch("nested")
        return x

    outer(1)


def down(n, name):
    if n:
        return down(n - 1, name)
    return launch(name)


@situation
def recursion():
    down(140, "recursion")


@situation
def too_deep():
    down(900, "too_deep")


@situation
def generators():
    def leaf():
        launch("generators")
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
        launch("generator_run_by_c")
        yield 2

    list(items())


@situation
def coroutines():
    async def source():
        yield 1
        launch("coroutines")
        yield 2

    async def consume():
        async for _ in source():
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(consume(), asyncio.sleep(0))

    asyncio.new_event_loop().run_until_complete(main())


@situation
def lambdas():
    (lambda f: f())(lambda: launch("lambdas"))


@situation
def comprehension():
    [launch("comprehension") for _ in range(1)]


@situation
def class_body():
    class Body:
        value = launch("class_body")


@situation
def executed():
    source = "def made():\n\n    launch('executed')\n\nmade()\n"
    exec(compile(source, "<made at run time>", "exec"), {"launch": launch})


@situation
def decorated():
    def twice(f):
        @functools.wraps(f)
        def wrapper(*arguments):
            return f(*arguments)

        return wrapper

    class Model:
        @staticmethod
        @twice
        @functools.lru_cache(maxsize=None)
        def forward(x):
            launch("decorated")

        def __call__(self, x):
            return self.forward(x)

    Model()(1)


@situation
def warm_init():
    class Thing:
        def __init__(self, rest):
            if rest:
                launch("warm_init")

    for n in range(3000):
        Thing(n == 2999)


@situation
def finalizer():
    class Thing:
        def __del__(self):
            launch("finalizer")

    thing = Thing()
    del thing


@situation
def c_calls_python():
    class Item:
        def __lt__(self, other):
            return functools.reduce(lambda a, b: launch("c_calls_python"), [1, 2])

    sorted([Item(), Item()], key=lambda item: item)


@situation
def call_back():
    callback = CALLBACK(lambda: launch("call_back"))
    HERE.call_back(callback)


@situation
def call_back_twice():
    inner = CALLBACK(lambda: launch("call_back_twice"))

    def between():
        HERE.modes["held"].call_back(inner)

    HERE.call_back(CALLBACK(between))


@situation
def large_frame():
    HERE.call_back_from_large_frame(CALLBACK(lambda: launch("large_frame")))


@situation
def variable_frame():
    HERE.call_back_from_variable_frame(CALLBACK(lambda: launch("variable_frame")), 1000)


@situation
def c_signal_handler():
    HERE.call_back_in_handler(CALLBACK(lambda: launch("c_signal_handler")))


@situation
def signal_handler():
    before = signal.signal(signal.SIGUSR2, lambda number, frame: launch("signal_handler"))
    os.kill(os.getpid(), signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)


@situation
def thread():
    started = threading.Thread(target=launch, args=("thread",))
    started.start()
    started.join()


@situation
def thread_made_by_c():
    HERE.call_back_in_thread(CALLBACK(lambda: launch("thread_made_by_c")))


@situation
def late_library():
    library = Library(LATE)
    library.call_back(CALLBACK(lambda: launch("late_library", library)))


def handles_of(kernel):
    return [None] * _HOT + [HANDLES[kernel]]


@situation
def hot_loop():
    for mode in MODES:
        native, call, handles = (
            (ctypes.c_void_p * _DEPTH)(),
            HERE.modes[mode].launch_here,
            handles_of("hot_loop_" + mode),
        )
        python = frames_of(sys._getframe())
        for handle in handles: depth = call(LAUNCH, handle, native, _DEPTH)  # fmt: skip  # noqa: E701
        python[0][2] += 1  # where the loop is
        remember("hot_loop_" + mode, python, native, depth)


@situation
def hot_call():
    for mode in MODES:
        native, call, handles = (
            (ctypes.c_void_p * _DEPTH)(),
            HERE.modes[mode].launch_here,
            handles_of("hot_call_" + mode),
        )
        step = lambda handle: call(LAUNCH, handle, native, _DEPTH)  # noqa: B023
        python = frames_of(sys._getframe())
        for handle in handles: depth = step(handle)  # fmt: skip  # noqa: E701
        python[0][2] += 1
        code = step.__code__
        KEPT.append(code)
        python.insert(0, [getattr(code, "co_qualname", code.co_name), code.co_filename, code.co_firstlineno])
        remember("hot_call_" + mode, python, native, depth)


def check(result):
    assert result == 0, result


def make_kernels():
    module = ctypes.c_void_p()
    check(CU.cuInit(0))
    check(CU.cuDevicePrimaryCtxRetain(ctypes.byref(CONTEXT), 0))
    check(CU.cuCtxSetCurrent(CONTEXT))
    kernels = [name + "_" + mode for name in SITUATIONS for mode in MODES]
    entries = "".join(".visible .entry " + kernel + "()\n{ ret; }\n" for kernel in kernels)
    source = ".version 8.0\n.target sm_90\n.address_size 64\n" + entries
    check(CU.cuModuleLoadData(ctypes.byref(module), source.encode() + b"\0"))
    for kernel in kernels:
        handle = ctypes.c_void_p()
        check(CU.cuModuleGetFunction(ctypes.byref(handle), module, kernel.encode()))
        HANDLES[kernel] = handle.value


def say(event, **more):
    # One write: a forked child's answer must not be torn.
    os.write(1, (json.dumps(dict(more, event=event, pid=os.getpid())) + "\n").encode())


def launch_everything():
    STACKS.clear()
    for run in SITUATIONS.values():
        run()
    say("phase", stacks=STACKS)


def obey(order):
    if order == "load":
        ctypes.CDLL(LATE)
        make_kernels()
        say("phase")
    elif order == "launch":
        launch_everything()
    elif order == "fork":
        child = os.fork()
        if not child:
            say("phase")
            for line in sys.stdin:
                obey(line.strip())
            os._exit(0)
        os.waitpid(child, 0)
        say("phase")
    elif order == "exec":
        os.execv(sys.executable, [sys.executable, *sys.argv])


if __name__ == "__main__":
    sys.setrecursionlimit(2000)
    say("ready")
    for line in sys.stdin:
        obey(line.strip())
