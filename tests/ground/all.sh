#!/usr/bin/env bash
# Is everything here that tests stand on? Makes what is missing, all at once, and says on stderr what cannot be had: tests
# that need it are skipped. With "torch" it includes PyTorch, which takes several GB.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

newest_pythons() { "$here/tools.sh" && "$here/sid.sh"; }

greenlets() {
    local minor status=0
    for minor in 8 9 10 11 12 13 14 15; do "$here/greenlet.sh" "$minor" || status=$?; done
    return "$status"
}

parts=(newest_pythons greenlets "$here/setup.sh" "$here/libraries.sh" "$here/hip.sh" "$here/verbs.sh" "$here/prometheus.sh"
    "$here/prometheus3.sh" "$here/nccl.sh" "$here/kubernetes.sh" "$here/ros2.sh")
[ "${1:-}" != torch ] || parts+=("$here/torch.sh")
makers=()
for part in "${parts[@]}"; do
    "$part" >/dev/null &
    makers+=($!)
done

skipped=0 failed=0
for maker in "${makers[@]}"; do
    wait "$maker"
    case $? in
    0) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
done
[ $skipped = 0 ] || echo "tests/ground: NOT EVERYTHING IS HERE, for the reasons above: tests that need it are skipped" >&2
[ $failed = 0 ]
