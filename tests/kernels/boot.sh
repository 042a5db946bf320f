#!/bin/bash
# Does the agent count exactly on this kernel? boot.sh VMLINUZ [PROGRAM] boots it in QEMU (software emulation) with an
# initramfs that holds this Python, the agent, the mock driver and programs that use it, runs check.py there, or another
# program of this directory, and prints what it says.
set -euo pipefail
. "$(dirname "$0")/machine.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make_root "$work/root"
cp "$here"/tests/standins/cuda/libcuda.so.1 "$here"/tests/programs/build/{launch_storm,small_program,small_driver.so} \
    "$here/tests/kernels/${2:-check.py}" "$work/root/work/"
add_libraries "$work/root"
boot "$1" "$work/root" "${2:-check.py}"
