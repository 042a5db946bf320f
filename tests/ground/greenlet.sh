#!/bin/sh
# Where is greenlet for CPython 3.MINOR? Prints the directory that holds the package; installed once from PyPI, then kept
# in the cache. What is missing is said on stderr, with exit status 77 (skip).
set -eu
minor=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu/greenlet
directory=$cache/3.$minor

if [ ! -e "$directory/greenlet/__init__.py" ]; then
    mkdir -p "$cache"
    # One maker at a time: a second caller waits and finds it complete.
    exec 9>"$cache/lock"
    flock 9
    if [ ! -e "$directory/greenlet/__init__.py" ]; then
        rm -rf "$directory.new"
        if ! python3 -m pip install --quiet --no-deps --only-binary :all: --python-version "3.$minor" \
            --target "$directory.new" greenlet >"$cache/log" 2>&1; then
            echo "greenlet.sh: no greenlet for CPython 3.$minor: $(tail -n 1 "$cache/log")" >&2
            exit 77
        fi
        rm -rf "$directory"
        mv "$directory.new" "$directory"
    fi
fi
echo "$directory"
