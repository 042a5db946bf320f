#!/usr/bin/env bash
# Where are AMD's HIP runtime and its headers? Prints a directory with lib/libamdhip64.so.5 and include/hip, unpacked once
# from Debian's packages (5 MB), never installed, and kept in the cache. When they cannot be had it says why on stderr,
# with exit status 77 (skip).
set -uo pipefail

packages="libamdhip64-5 libamdhip64-dev"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
dir=$cache/hip
log=$cache/hip.log

missing() {
    echo "hip: $1" >&2
    exit 77
}

mkdir -p "$cache"
exec 9>"$cache/hip.lock"
flock 9
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$packages" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || missing "built for Linux on x86-64 only, this is $(uname -sm)"
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || missing "Debian's tools are not here: apt-get, dpkg-deb"
    rm -rf "$dir" && mkdir -p "$dir/packages"
    # shellcheck disable=SC2086 # a list of packages
    (cd "$dir/packages" && nice -n 5 apt-get download $packages) >"$log" 2>&1 ||
        missing "apt-get download failed: $(tail -n 1 "$log") (log: $log)"
    for package in "$dir"/packages/*.deb; do
        dpkg-deb -x "$package" "$dir/root" >>"$log" 2>&1 || missing "cannot be unpacked: $package (log: $log)"
    done
    ln -s root/usr/include "$dir/include"
    ln -s root/usr/lib/x86_64-linux-gnu "$dir/lib"
    rm -rf "$dir/packages"
    echo "$packages" >"$dir/.complete"
fi
echo "$dir"
