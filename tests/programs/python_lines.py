"""What the interpreter itself says of the lines of its own library; runs on CPython 3.8 and later.

Prints one JSON line per code object: [line table in hexadecimal, first line, [[start, end, line], ...]].
"""

import dis
import json
import json.decoder
import textwrap
import types


def ranges(code):
    if hasattr(code, "co_lines"):
        return list(code.co_lines())
    starts = list(dis.findlinestarts(code))
    ends = [start for start, _ in starts[1:]] + [len(code.co_code)]
    return [(start, end, line) for (start, line), end in zip(starts, ends)]


def walk(code):
    table = getattr(code, "co_linetable", None)
    if table is None:
        table = code.co_lnotab
    print(json.dumps([table.hex(), code.co_firstlineno, ranges(code)]))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            walk(constant)


for module in (types, json.decoder, textwrap):
    with open(module.__file__, encoding="utf-8") as file:
        walk(compile(file.read(), module.__file__, "exec"))
