"""What is on a stack that goes through several interpreters of one program? Launches made in sub-interpreters.

Runs on CPython 3.8 and later, by the module that each version has for it.
"""

import json
import os
import sys
import threading

try:
    import _interpreters
except ImportError:
    import _xxsubinterpreters as _interpreters

from launcher import CONTEXT, HANDLES, STACKS, frames_of

SITUATIONS = {}
KEPT = []  # an interpreter ends with its last reference, and its code objects with it
_HERE = os.path.dirname(os.path.abspath(__file__))


def situation(run):
    SITUATIONS[run.__name__] = run
    return run


def create(own_lock=False):
    """Make an interpreter; it shares this one's lock unless it is to have its own (3.12 and later)."""
    if sys.version_info < (3, 12):
        made = _interpreters.create()
    elif sys.version_info < (3, 13):
        made = _interpreters.create(isolated=own_lock)
    else:
        made = _interpreters.create("isolated" if own_lock else "legacy")
    KEPT.append(made)
    return made


class Request:
    """What another interpreter is asked to launch."""

    def __init__(self, name, helper, way):
        self.name = name
        self._answer, answer = os.pipe()
        handles = {kernel: handle for kernel, handle in HANDLES.items() if kernel.startswith(name)}
        self.text = json.dumps(
            {"context": CONTEXT.value, "handles": handles, "helper": helper, "way": way, "answer": answer}
        )

    def source(self):
        """Return the program to run there."""
        return (
            f"import sys; sys.path.insert(0, {_HERE!r})\nimport launcher\n"
            "launcher.KEPT.append(sys._getframe().f_code)\n"
            f"launcher.launch_at_the_instance_of_another({self.name!r}, {self.text!r})\n"
        )

    def read(self):
        """Return what was said there."""
        with os.fdopen(self._answer) as answer:
            stacks = answer.readline()
        os.close(json.loads(self.text)["answer"])
        return json.loads(stacks)

    def done(self, outer):
        """Take what was said there; the frames that ran it are `outer`."""
        keep(self.read(), outer)


def keep(stacks, outer):
    for kernel, stack in stacks.items():
        stack["python"] += outer
        STACKS[kernel] = stack


def run(interpreter, source):
    """Run a program there; return the frames that this was done from."""
    outer, problem = frames_of(sys._getframe()), _interpreters.run_string(interpreter, source)
    assert problem is None, problem
    return outer


def in_thread(target, *arguments):
    thread = threading.Thread(target=target, args=arguments)
    thread.start()
    thread.join()


def launch_in(interpreter, name, helper, way="plainly"):
    request = Request(name, helper, way)
    request.done(run(interpreter, request.source()))


@situation
def subinterpreter(name, helper):
    launch_in(create(), name, helper)


@situation
def subinterpreter_from_c(name, helper):
    interpreter = create()
    sorted([1], key=lambda n: launch_in(interpreter, name, helper, "from_c"))


@situation
def subinterpreter_in_thread(name, helper):
    in_thread(lambda: launch_in(create(), name, helper, "from_c"))


@situation
def subinterpreter_made_elsewhere(name, helper):
    """Up to 3.12 it keeps the thread state of the thread that made it."""
    in_thread(launch_in, create(), name, helper, "from_c")


@situation
def subinterpreter_calls_back(name, helper):
    launch_in(create(), name, helper, "from_a_callback")


@situation
def subinterpreter_has_ended(name, helper):
    interpreter = create()
    run(interpreter, "def f():\n    return 1\nf()\n")
    _interpreters.destroy(interpreter)
    launch_in(create(), name, helper, "from_c")


@situation
def subinterpreter_nested(name, helper):
    request = Request(name, helper, "from_c")
    answer, say = os.pipe()
    source = (
        f"import sys; sys.path.insert(0, {_HERE!r})\nimport interpreters, json, os, launcher\n"
        "launcher.KEPT.append(sys._getframe().f_code)\n"
        f"outer = interpreters.run(interpreters.create(), {request.source()!r})\n"
        f"os.write({say}, (json.dumps(outer) + '\\n').encode())\n"
    )
    outer = run(create(), source)
    with os.fdopen(answer) as inner:
        request.done(json.loads(inner.readline()) + outer)
    os.close(say)


@situation
def subinterpreter_rests_in_another_thread(name, helper):
    begun, say = os.pipe()
    source = f"import os, time\nos.write({say}, b'1')\ntime.sleep(10000)\n"
    threading.Thread(target=run, args=(create(), source), daemon=True).start()
    os.read(begun, 1)
    launch_in(create(), name, helper, "from_c")


if sys.version_info >= (3, 13):
    # 3.12 has no ctypes in interpreters of that kind.

    @situation
    def interpreter_with_its_own_lock(name, helper):
        launch_in(create(own_lock=True), name, helper, "from_c")

    @situation
    def interpreter_with_its_own_lock_in_thread(name, helper):
        in_thread(lambda: launch_in(create(own_lock=True), name, helper, "from_c"))


if sys.version_info >= (3, 14):
    from concurrent.futures import InterpreterPoolExecutor

    POOLS = []

    @situation
    def interpreter_pool(name, helper):
        pool = InterpreterPoolExecutor(1)
        POOLS.append(pool)  # with its interpreter, whose code objects are to be read
        request = Request(name, helper, "from_c")
        go, say = os.pipe()
        done = pool.submit(exec, request.source() + f"import os; os.read({go}, 1)\n")
        stacks = request.read()
        (worker,) = pool._threads
        outer = frames_of(sys._current_frames()[worker.ident])
        os.write(say, b"1")
        done.result()
        keep(stacks, outer)
