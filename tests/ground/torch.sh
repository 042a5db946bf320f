#!/usr/bin/env bash
# Which Python has PyTorch? Prints the interpreter of a virtual environment with PyTorch's CUDA build, made once (6 GB,
# from PyPI) and kept in the cache. When it cannot be had it says why on stderr, with exit status 77 (skip).
set -uo pipefail

# 2.6.0 (CUDA 12.4) was tried on the mock driver with autograd, cuBLAS, CUDA graphs, NCCL and Triton; TORCH=2.15.0, of
# CUDA 13, passes the same tests.
packages="torch==${TORCH:-2.6.0} numpy==2.2.6"
needs_gb=14

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
dir=$cache/torch${TORCH:+-$TORCH}
log=$cache/torch.log

missing() {
    echo "torch: $1" >&2
    exit 77
}

python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=python3
key="$packages $("$python" -V)"

mkdir -p "$cache"
exec 9>"$cache/torch.lock"
flock 9
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$key" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || missing "PyTorch's CUDA build is for Linux on x86-64, this is $(uname -sm)"
    rm -rf "$dir"
    free_gb=$(($(df --output=avail -k "$cache" | tail -n 1) / 1048576))
    [ "$free_gb" -ge "$needs_gb" ] || missing "needs $needs_gb GB in $cache, $free_gb are free"
    "$python" -m venv "$dir/venv" >"$log" 2>&1 || missing "no virtual environment: $(tail -n 1 "$log")"
    # shellcheck disable=SC2086 # a list of requirements
    nice -n 5 "$dir/venv/bin/python" -m pip install -q $packages >>"$log" 2>&1 ||
        missing "pip install failed: $(tail -n 1 "$log") (log: $log)"
    echo "$key" >"$dir/.complete"
fi
echo "$dir/venv/bin/python"
