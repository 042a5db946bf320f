"""Never rests: pure Python, C called from Python, C that calls Python, the vDSO, and threads; says "ready" first."""

import hashlib
import json
import re
import sys
import threading
import time

DATA = b"x" * 4096
TEXT = "some words, and more of them " * 50


def computes():
    return sum(n * n for n in range(500))


def sorts():
    return sorted(range(200), key=lambda n: -n)


def hashes():
    return hashlib.sha256(DATA).hexdigest()


def matches():
    return len(re.findall(r"\w+", TEXT))


def looks_at_the_clock():
    for _ in range(300):
        time.monotonic()


def encodes():
    return json.loads(json.dumps({str(n): [n] * 3 for n in range(50)}))


def work():
    while True:
        for function in (computes, sorts, hashes, matches, looks_at_the_clock, encodes):
            function()


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        threading.Thread(target=work, daemon=True).start()
    print(json.dumps({"event": "ready"}), flush=True)
    work()
