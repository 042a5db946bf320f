#!/bin/sh
# Which root holds the newest CPythons? Prints the path of a Debian unstable root with python3.14 and python3.15,
# static (/usr/bin/python3.14) and shared (libpython3.14.so.1.0). Made once by debootstrap from the mirror that this
# machine's own apt uses, then kept in the cache. What is missing is said on stderr, with exit status 77 (skip).
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

if [ -e "$root/.complete" ]; then
    echo "$root"
    exit 0
fi
[ "$(id -u)" = 0 ] || skip "debootstrap and chroot need root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed: tests/ground/tools.sh installs it"
mirror=$(apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
[ -n "$mirror" ] || skip "apt on this machine reads no Debian mirror"

mkdir -p "$cache"
# One maker at a time: a second caller waits and finds the root complete.
exec 9>"$cache/sid.lock"
flock 9
if [ ! -e "$root/.complete" ]; then
    rm -rf "$root"
    log=$cache/sid.log
    if ! nice debootstrap --variant=minbase --include="$packages" sid "$root" "$mirror" >"$log" 2>&1; then
        skip "debootstrap of sid from $mirror failed: $(tail -n 1 "$log") (log: $log)"
    fi
    touch "$root/.complete"
fi
echo "$root"
