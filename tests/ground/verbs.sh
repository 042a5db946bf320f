#!/usr/bin/env bash
# Where are libibverbs, its headers, its provider for soft-RoCE, and perftest? Prints a directory with include/infiniband,
# lib and bin, unpacked once from Debian's packages (3 MB), never installed, and kept in the cache. When they cannot be had
# it says why on stderr, with exit status 77 (skip).
set -uo pipefail

packages="libibverbs-dev libibverbs1 ibverbs-providers librdmacm1 perftest libnl-3-200 libnl-route-3-200"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
dir=$cache/verbs
log=$cache/verbs.log

missing() {
    echo "verbs: $1" >&2
    exit 77
}

mkdir -p "$cache"
exec 9>"$cache/verbs.lock"
flock 9
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$packages" ]; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || missing "Debian's tools are not here: apt-get, dpkg-deb"
    rm -rf "$dir" && mkdir -p "$dir/packages"
    # shellcheck disable=SC2086 # a list of packages
    (cd "$dir/packages" && nice -n 5 apt-get download $packages) >"$log" 2>&1 ||
        missing "apt-get download failed: $(tail -n 1 "$log") (log: $log)"
    for package in "$dir"/packages/*.deb; do
        dpkg-deb -x "$package" "$dir/root" >>"$log" 2>&1 || missing "cannot be unpacked: $package (log: $log)"
    done
    ln -s root/usr/include "$dir/include"
    ln -s "root/usr/lib/$(uname -m)-linux-gnu" "$dir/lib"
    ln -s root/usr/bin "$dir/bin"
    rm -rf "$dir/packages"
    echo "$packages" >"$dir/.complete"
fi
echo "$dir"
