"""Maps the libraries that are its arguments, all at once when told to, and waits for its end."""

from __future__ import annotations

import ctypes
import json
import sys


def say(event: str) -> None:
    print(json.dumps({"event": event}), flush=True)


say("ready")
sys.stdin.readline()
for path in sys.argv[1:]:
    ctypes.CDLL(path)
say("phase")
sys.stdin.readline()
