#!/bin/bash
# Does everything hold on Debian's kernels, 5.10 to 7.2? all.sh [SUITE ...] runs the programs of this directory on each, one machine
# after the other, says which kernels failed, and fails then.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kernels=$("$here/../ground/kernels.sh" "$@") || exit
failed=()
while read -r release image; do
    "$here/boot.sh" "$image" load.py check.py rights.py || failed+=("$release")
done <<<"$kernels"
[ ${#failed[@]} = 0 ] && exit
printf 'failed: %s\n' "${failed[@]}" >&2
exit 1
