"""Launches in one interpreter of a program, each with a kernel of its own, and says where each was made.

Every interpreter that launches has this module to itself. Runs on CPython 3.8 and later.
"""

import ctypes
import json
import os
import sys

MODES = ("released", "held")
CALLBACK = ctypes.CFUNCTYPE(None)
DEPTH = 4096
CU = ctypes.CDLL("libcuda.so.1")
LAUNCH = ctypes.cast(CU.cuLaunchKernel, ctypes.c_void_p).value
CONTEXT = ctypes.c_void_p()
HANDLES = {}
STACKS = {}
KEPT = []  # code objects, so that their names can still be read when all is over


class Library:
    """The helper, called with the GIL released and with it held."""

    def __init__(self, path):
        self.modes = {"released": ctypes.CDLL(path), "held": ctypes.PyDLL(path)}
        for library in self.modes.values():
            library.launch_here.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]

    def __getattr__(self, name):
        return getattr(self.modes["released"], name)


def frames_of(frame, outermost=None):
    """Return a frame and its callers, up to one that runs `outermost`."""
    found = []
    while frame is not None:
        code = frame.f_code
        KEPT.append(code)
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = None if code is outermost else frame.f_back
    return found


def remember(kernel, python, native, depth):
    assert depth >= 0, "the launch failed"
    STACKS[kernel] = {"python": python, "native": list(native[:depth])}


def launch(name, library, outermost=None, size=DEPTH):
    """Launch with the GIL released, then with it held; tell `size` native frames."""
    check(CU.cuCtxSetCurrent(CONTEXT))
    for mode, helper in library.modes.items():
        kernel = name + "_" + mode
        native, call = (ctypes.c_void_p * size)(), helper.launch_here
        # One line: a frame is where its innermost call is.
        python, depth = frames_of(sys._getframe(), outermost), call(LAUNCH, HANDLES[kernel], native, size)
        assert depth or not size, "its stack could not be told"
        remember(kernel, python, native, depth)


def check(result):
    assert result == 0, result


def launch_at_the_instance_of_another(name, request):
    """Launch in this interpreter what another made ready, and write the stacks where it reads them."""
    request = json.loads(request)
    CONTEXT.value = request["context"]
    HANDLES.update(request["handles"])
    library = Library(request["helper"])
    STACKS.clear()
    {"plainly": plainly, "from_c": from_c, "from_a_callback": from_a_callback}[request["way"]](name, library)
    os.write(request["answer"], (json.dumps(STACKS) + "\n").encode())


def plainly(name, library):
    launch(name, library)


def from_c(name, library):
    """With more than one activation of the eval loop, and a generator."""

    def items():
        yield sorted([1], key=lambda n: launch(name, library))

    list(items())


def from_a_callback(name, library):
    """Up to 3.11 a callback runs in the thread's first interpreter, whoever made it: their frames take turns."""

    def called():
        launch(name, library, called.__code__)

    callback = CALLBACK(called)
    python, _ = frames_of(sys._getframe()), library.call_back(callback)
    for stack in STACKS.values():
        stack["python"] += python
