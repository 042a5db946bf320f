#!/bin/bash
# Does the agent hold on this kernel? boot.sh VMLINUZ [PROGRAM ...] boots it in QEMU (software emulation) with an initramfs that
# holds this Python, the agent, the mock driver and programs that use it, runs check.py there, or other programs of this
# directory one after the other, and prints what they say.
set -euo pipefail
. "$(dirname "$0")/machine.sh"
image=$1
shift
[ $# -gt 0 ] || set -- check.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make_root "$work/root"
cp "$here"/tests/standins/cuda/libcuda.so.1 "$here"/tests/programs/build/{launch_storm,small_program,small_driver.so} \
    "${@/#/$here/tests/kernels/}" "$work/root/work/"
add_libraries "$work/root"
boot "$image" "$work/root" "$@"
