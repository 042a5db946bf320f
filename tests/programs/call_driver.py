"""Make one driver call at a time, as told on standard input, with any argument whatever.

    {"symbol": "cuMemcpyHtoD_v2", "arguments": [1, {"bytes": "00ff"}, 3], "next": {"next_address": 4096}}

Every argument is passed as 64 bits, so that the upper halves of 32-bit parameters can hold anything, as the calling
conventions allow. `bytes` becomes memory, whose address is passed. `next` sets variables of the library beforehand.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    print(json.dumps({"event": "ready", "pid": os.getpid(), "phase": 0}), flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        for name, value in call.get("next", {}).items():
            ctypes.c_uint64.in_dll(library, name).value = value
        memory = []
        words = []
        for argument in call["arguments"]:
            value = argument
            if isinstance(argument, dict):
                data = bytes.fromhex(argument["bytes"])
                memory.append(ctypes.create_string_buffer(data, len(data)))
                value = ctypes.addressof(memory[-1])
            words.append(ctypes.c_uint64(value))
        result = getattr(library, call["symbol"])(*words)
        print(json.dumps({"event": "returned", "result": result}), flush=True)


if __name__ == "__main__":
    main()
