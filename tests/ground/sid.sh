#!/bin/sh
# Which root holds the newest CPythons? Prints the path of a Debian unstable root with python3.14 and python3.15,
# static (/usr/bin/python3.14) and shared (libpython3.14.so.1.0), and in its /tmp the programs that tests run there and
# the launcher of shared CPythons. Made once by debootstrap from the mirror that this machine's own apt uses, then kept
# in the cache. What is missing is said on stderr, with exit status 77 (skip).
set -eu
# Where debootstrap lies, which is not on everybody's PATH.
PATH=$PATH:/usr/sbin:/sbin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
root=$cache/sid
packages=python3.14,python3.15,libpython3.14,libpython3.15

skip() {
    echo "sid.sh: $1" >&2
    exit 77
}

[ "$(id -u)" = 0 ] || skip "debootstrap and chroot need root"

mkdir -p "$cache"
# One maker at a time: a second caller waits and finds the root complete.
exec 9>"$cache/sid.lock"
flock 9
if [ ! -e "$root/.complete" ]; then
    command -v debootstrap >/dev/null || skip "debootstrap is not installed: tests/ground/tools.sh installs it"
    mirror=$(apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
    [ -n "$mirror" ] || skip "apt on this machine reads no Debian mirror"
    rm -rf "$root"
    log=$cache/sid.log
    if ! nice debootstrap --variant=minbase --include="$packages" sid "$root" "$mirror" >"$log" 2>&1; then
        skip "debootstrap of sid from $mirror failed: $(tail -n 1 "$log") (log: $log)"
    fi
    touch "$root/.complete"
fi

# place FILE: puts it into the root's /tmp, whole, when it differs: another test run may be reading it.
place() {
    cmp -s "$1" "$root/tmp/${1##*/}" && return
    cp "$1" "$root/tmp/${1##*/}.new"
    mv "$root/tmp/${1##*/}.new" "$root/tmp/${1##*/}"
}

programs=$(cd "$(dirname "$0")/../programs" && pwd)
for program in python_situations.py ways_to_call.py python_lines.py python_churn.py; do place "$programs/$program"; done
if ! cmp -s "$programs/python_launcher.c" "$root/tmp/python_launcher.c" || [ ! -e "$root/tmp/python_launcher" ]; then
    ${CC:-cc} -O1 -o "$cache/python_launcher" "$programs/python_launcher.c" -ldl || skip "the launcher of shared CPythons was not built"
    place "$cache/python_launcher"
    place "$programs/python_launcher.c"
fi
echo "$root"
