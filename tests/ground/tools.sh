#!/usr/bin/env bash
# Which programs of the distribution do tests run? Installs those that are missing, as root by apt, and prints each with
# its path. What is downloaded for that is kept in the cache. What cannot be had says why on stderr, and the exit status
# is 77 (skip).
#
#   debootstrap  makes the root of sid.sh
#   musl-gcc     links programs with another C library
#   chromium     shows flame graphs as a person sees them
#   zsh, fish    complete the command as a person has it completed
#   qemu         boots another kernel, in which are what cpio packs, busybox, modules by kmod and links by iproute2
set -uo pipefail
# Where debootstrap lies, which is on root's PATH only.
PATH=$PATH:/usr/sbin:/sbin

cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
archives=$cache/tools
log=$cache/tools.log

first_of() { for c in "$@"; do command -v "$c" && return; done || true; }
find_debootstrap() { first_of debootstrap; }
find_musl_gcc() { first_of musl-gcc; }
find_qemu() { first_of qemu-system-x86_64; }
find_chromium() { first_of chromium chromium-browser chromium-headless-shell google-chrome google-chrome-stable; }

absent() {
    [ -n "$(find_debootstrap)" ] || echo debootstrap
    [ -n "$(find_musl_gcc)" ] || echo musl-tools
    # What is missing to boot another kernel is of some of these.
    [ -n "$(find_qemu)" ] || echo qemu-system-x86
    [ -n "$(first_of busybox)" ] || echo busybox-static
    [ -n "$(first_of cpio)" ] || echo cpio
    [ -n "$(first_of depmod)" ] || echo kmod
    [ -n "$(first_of rdma)" ] || echo iproute2
    # Shells that complete the command.
    [ -n "$(first_of zsh)" ] || echo zsh
    [ -n "$(first_of fish)" ] || echo fish
    # The browser without a desktop's libraries, where the distribution has it.
    [ -n "$(find_chromium)" ] || apt-cache --quiet=2 pkgnames chromium-headless-shell | grep -x chromium-headless-shell ||
        echo chromium
}

install_absent() {
    if ! command -v apt-get >/dev/null; then
        echo "install by this distribution's package manager: $(absent | xargs)"
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        echo "as root: apt-get install $(absent | xargs)"
        return 1
    fi
    mkdir -p "$archives/partial"
    local apt=(apt-get -q -o "Dir::Cache::archives=$archives" -o APT::Sandbox::User=root -o DPkg::Lock::Timeout=300)
    # Package lists come first: without them it is not known which packages there are.
    nice -n 5 "${apt[@]}" update >"$log" 2>&1
    local package
    for package in $(absent); do
        DEBIAN_FRONTEND=noninteractive nice -n 5 "${apt[@]}" install -y --no-install-recommends "$package" >>"$log" 2>&1 ||
            echo "apt-get install $package failed: $(grep -v '^$' "$log" | tail -n 1) (log: $log)"
    done
}

mkdir -p "$cache"
# Package managers wait for nobody: one maker at a time.
exec 9>"$cache/tools.lock"
flock 9
reason=
[ -z "$(absent 2>/dev/null)" ] || reason=$(install_absent | paste -sd ";")
status=0
for tool in debootstrap musl_gcc qemu chromium; do
    path=$("find_$tool")
    if [ -n "$path" ]; then
        printf '%s\t%s\n' "${tool/_/-}" "$path"
    else
        echo "tools.sh: no ${tool/_/-}: ${reason:-its package was installed, but it is not on PATH}" >&2
        status=77
    fi
done
exit $status
