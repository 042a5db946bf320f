# The odd ways of calling are the point, and 3.8 must run them.
# ruff: noqa: E731, UP033
"""Launches from every kind of stack, each with a kernel of its own, and says where each was made.

Runs on CPython 3.8 and later: python_launches.py HELPER LATE (two copies of native_truth.c's library). Says "ready",
then does what each line of its input names: "load" maps LATE and loads the kernels, "launch" runs every situation,
"greenlets" runs those of greenlets.py, "fork" obeys in a child, "exec" becomes this program again. The answer is an event with the stacks: {kernel: {"python": [[name, file,
line], ...], "native": [address, ...]}}, innermost first; native frames begin in `launch_here`.
"""

import ctypes
import functools
import json
import os
import signal
import sys
import threading

import interpreters
from launcher import (
    CALLBACK,
    CONTEXT,
    CU,
    DEPTH,
    HANDLES,
    KEPT,
    LAUNCH,
    MODES,
    STACKS,
    Library,
    check,
    frames_of,
    launch,
    remember,
)
from ways_to_call import WAYS, down

HELPER, LATE = sys.argv[1:3]
SITUATIONS = {}
_HOT = 6000
HERE = Library(HELPER)


def situation(run):
    SITUATIONS[run.__name__] = run
    return run


def launch_from_here(name, library=HERE):
    launch(name, library)


def add_ways(suffix=""):
    for way, run in WAYS.items():
        name = way + suffix
        SITUATIONS[name] = functools.partial(run, functools.partial(launch, name, HERE))


add_ways()


@situation
def too_deep():
    # 3.12 lets C, which perf's trampolines have between all frames, call itself 800 times.
    down(700, lambda: launch_from_here("too_deep"))


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
            launch_from_here("decorated")

        def __call__(self, x):
            return self.forward(x)

    Model()(1)


@situation
def call_back():
    callback = CALLBACK(lambda: launch_from_here("call_back"))
    HERE.call_back(callback)


@situation
def call_back_twice():
    inner = CALLBACK(lambda: launch_from_here("call_back_twice"))

    def between():
        HERE.modes["held"].call_back(inner)

    HERE.call_back(CALLBACK(between))


@situation
def large_frame():
    HERE.call_back_from_large_frame(CALLBACK(lambda: launch_from_here("large_frame")))


@situation
def variable_frame():
    HERE.call_back_from_variable_frame(CALLBACK(lambda: launch_from_here("variable_frame")), 1000)


@situation
def c_signal_handler():
    HERE.call_back_in_handler(CALLBACK(lambda: launch_from_here("c_signal_handler")))


@situation
def signal_handler():
    before = signal.signal(signal.SIGUSR2, lambda number, frame: launch_from_here("signal_handler"))
    os.kill(os.getpid(), signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)


@situation
def thread():
    started = threading.Thread(target=launch_from_here, args=("thread",))
    started.start()
    started.join()


@situation
def thread_made_by_c():
    HERE.call_back_in_thread(CALLBACK(lambda: launch_from_here("thread_made_by_c")))


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
            (ctypes.c_void_p * DEPTH)(),
            HERE.modes[mode].launch_here,
            handles_of("hot_loop_" + mode),
        )
        python = frames_of(sys._getframe())
        for handle in handles: depth = call(LAUNCH, handle, native, DEPTH)  # fmt: skip  # noqa: E701
        python[0][2] += 1  # where the loop is
        remember("hot_loop_" + mode, python, native, depth)


@situation
def hot_call():
    for mode in MODES:
        native, call, handles = (
            (ctypes.c_void_p * DEPTH)(),
            HERE.modes[mode].launch_here,
            handles_of("hot_call_" + mode),
        )
        step = lambda handle: call(LAUNCH, handle, native, DEPTH)  # noqa: B023
        python = frames_of(sys._getframe())
        for handle in handles: depth = step(handle)  # fmt: skip  # noqa: E701
        python[0][2] += 1
        code = step.__code__
        KEPT.append(code)
        python.insert(0, [getattr(code, "co_qualname", code.co_name), code.co_filename, code.co_firstlineno])
        remember("hot_call_" + mode, python, native, depth)


for _name, _run in interpreters.SITUATIONS.items():
    SITUATIONS[_name] = functools.partial(_run, _name, HELPER)
# One of them runs on in another thread.
add_ways("_amid_interpreters")


try:
    import greenlets
except ImportError:
    GREENLETS = {}
else:
    GREENLETS = {
        # backtrace() itself walks into unmapped memory there.
        name: functools.partial(run, functools.partial(launch, name, HERE, size=0))
        for name, run in greenlets.SITUATIONS.items()
    }


def make_kernels():
    module = ctypes.c_void_p()
    check(CU.cuInit(0))
    check(CU.cuDevicePrimaryCtxRetain(ctypes.byref(CONTEXT), 0))
    check(CU.cuCtxSetCurrent(CONTEXT))
    kernels = [name + "_" + mode for name in [*SITUATIONS, *GREENLETS] for mode in MODES]
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


def launch_everything(situations):
    STACKS.clear()
    for run in situations.values():
        run()
    say("phase", stacks=STACKS)


def obey(order):
    if order == "load":
        ctypes.CDLL(LATE)
        make_kernels()
        say("phase")
    elif order == "launch":
        launch_everything(SITUATIONS)
    elif order == "greenlets":
        launch_everything(GREENLETS)
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
    # Interpreters that still run, or whose code objects are to be read, are not taken down.
    os._exit(0)
