#!/usr/bin/env bash
# What must come from the distribution? Compilers and libbpf; installs what is missing, and nothing when all is there.
set -euo pipefail

first_of() { for c in "$@"; do command -v "$c" && return; done || true; }
# Python's own idea of itself: Debian and Ubuntu split venv from the interpreter.
can_make_venv() { "${PYTHON:-python3}" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

# What apt would be asked for, where a tool or a file is missing.
missing=()
[ -n "$(first_of clang-14 clang)" ] || missing+=(clang-14)
[ -n "$(first_of llvm-strip-14 llvm-strip)" ] || missing+=(llvm-14)
[ -n "$(first_of cc gcc)" ] || missing+=(gcc libc6-dev)
[ -n "$(first_of objdump)" ] || missing+=(binutils)
[ -n "$(first_of curl)" ] || missing+=(curl)
[ -e /usr/include/bpf/bpf_helpers.h ] || missing+=(libbpf-dev)
ldconfig -p | grep -q 'libbpf\.so\.1' || missing+=(libbpf1)
can_make_venv || missing+=(python3 python3-venv)
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]} (Debian's names); install them with this distribution's package manager" >&2
    exit 1
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
available=()
for package in "${missing[@]}"; do
    # Later releases have no clang-14 and llvm-14; their default ones do as well.
    case $package in
        clang-14 | llvm-14) apt-cache show "$package" >/dev/null 2>&1 || package=${package%-14} ;;
    esac
    available+=("$package")
done
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${available[@]}" >/dev/null
