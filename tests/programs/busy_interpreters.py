"""Hardly rests, in the main interpreter and in others, each in a thread of its own; says "ready" first.

Runs on CPython 3.8 and later; from 3.12 on one interpreter has a lock of its own. Up to 3.12 an interpreter that does
not give up the lock of its own accord keeps it from the others for ever.
"""

import json
import sys
import threading
import time

try:
    import _interpreters
except ImportError:
    import _xxsubinterpreters as _interpreters

BUSY = """
import time

def {name}_works():
    while True:
        for _ in range(50):
            sum(n * n for n in range(500))
            sorted(range(200), key=lambda n: -n)
        time.sleep(0.001)

def {name}_begins():
    {name}_works()

{name}_begins()
"""
NESTED = """
try:
    import _interpreters
except ImportError:
    import _xxsubinterpreters as _interpreters

def between_begins(interpreter):
    {run}

between_begins({create})
"""
RUN = "_interpreters.run_string(interpreter, {source!r})"
if sys.version_info < (3, 12):
    SHARED = OWN = "_interpreters.create()"
elif sys.version_info < (3, 13):
    SHARED, OWN = "_interpreters.create(isolated=False)", "_interpreters.create(isolated=True)"
else:
    SHARED, OWN = "_interpreters.create('legacy')", "_interpreters.create('isolated')"
PROGRAMS = {
    "shared": (SHARED, BUSY.format(name="shared")),
    "own": (OWN, BUSY.format(name="own")),
    "nested": (SHARED, NESTED.format(run=RUN.format(source=BUSY.format(name="nested")), create=SHARED)),
}


def shared_thread(interpreter, source):
    _interpreters.run_string(interpreter, source)


def own_thread(interpreter, source):
    _interpreters.run_string(interpreter, source)


def nested_thread(interpreter, source):
    _interpreters.run_string(interpreter, source)


def main_works():
    while True:
        for _ in range(50):
            sum(n * n for n in range(500))
            sorted(range(200), key=lambda n: -n)
        time.sleep(0.001)


if __name__ == "__main__":
    for name, (create, source) in PROGRAMS.items():
        thread = globals()[name + "_thread"]
        threading.Thread(target=thread, args=(eval(create), source), daemon=True).start()
    print(json.dumps({"event": "ready"}), flush=True)
    main_works()
