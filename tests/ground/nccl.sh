#!/usr/bin/env bash
# Where is NVIDIA's NCCL, as PyTorch 2.6 and 2.15 and the newest wheel have it? Prints "version<TAB>libnccl.so.2" for each
# of the versions named (default: all three), unpacked once from PyPI (0.3 GB each) and kept in the cache. When one cannot be
# had it says why on stderr, with exit status 77 (skip).
set -uo pipefail

versions="2.21.5 2.30.7 2.32.3"

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
log=$cache/nccl.log

missing() {
    echo "nccl: $1" >&2
    exit 77
}

python=${PYTHON:-$here/../../.venv/bin/python}
[ -x "$python" ] || python=python3

mkdir -p "$cache"
exec 9>"$cache/nccl.lock"
flock 9
for version in ${*:-$versions}; do
    dir=$cache/nccl/$version
    if [ ! -e "$dir/.complete" ]; then
        [ "$(uname -sm)" = "Linux x86_64" ] || missing "built for Linux on x86-64 only, this is $(uname -sm)"
        rm -rf "$dir" && mkdir -p "$dir"
        nice -n 5 "$python" -m pip install -q --no-deps --target "$dir" "nvidia-nccl-cu12==$version" >"$log" 2>&1 ||
            missing "pip install failed: $(tail -n 1 "$log") (log: $log)"
        touch "$dir/.complete"
    fi
    printf '%s\t%s\n' "$version" "$dir/nvidia/nccl/lib/libnccl.so.2"
done
