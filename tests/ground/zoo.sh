#!/usr/bin/env bash
# Which Python has a program of the zoo? Prints the interpreter of a virtual environment of its own, made once from PyPI by
# `zoo.sh NAME` and kept in the cache. When it cannot be had it says why on stderr, with exit status 77 (skip).
set -uo pipefail

name=${1:-}
runtime="nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvrtc-cu12==12.9.86"
case $name in
cupy) packages="cupy-cuda12x==14.2.0 $runtime" needs_gb=1 ;;
numba) packages="numba-cuda[cu12]==0.30.4" needs_gb=2 ;;
warp) packages="warp-lang==1.19.0" needs_gb=2 ;;
cuda-core) packages="cuda-core[cu12]==1.2.0 $runtime" needs_gb=2 ;;
xgboost) packages="xgboost==3.2.0" needs_gb=1 ;;
tinygrad) packages="tinygrad==0.14.0 numpy==2.4.6 nvidia-cuda-nvrtc-cu12==12.9.86" needs_gb=1 ;;
rmm) packages="rmm-cu12==26.10.0 cupy-cuda12x==14.2.0 $runtime" needs_gb=2 ;;
ctranslate2) packages="ctranslate2==4.8.5 nvidia-cublas-cu12==12.9.1.4" needs_gb=3 ;;
onnxruntime)
    packages="onnxruntime-gpu==1.31.1 onnx==1.23.2 nvidia-cublas==13.10.0.20 nvidia-cuda-nvrtc==13.5.37"
    packages+=" nvidia-cuda-runtime==13.5.37 nvidia-cudnn-cu13==9.28.1.4 nvidia-cufft==12.5.0.14 nvidia-curand==10.4.5.25"
    needs_gb=5
    ;;
*)
    echo "zoo: no program of the name '$name'" >&2
    exit 2
    ;;
esac

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
dir=$cache/zoo/$name
log=$cache/zoo/$name.log

missing() {
    echo "$name: $1" >&2
    exit 77
}

python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=python3
key="$packages $("$python" -V)"

mkdir -p "$cache/zoo"
exec 9>"$cache/zoo/$name.lock"
flock 9
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$key" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || missing "its wheels are for Linux on x86-64, this is $(uname -sm)"
    rm -rf "$dir"
    free_gb=$(($(df --output=avail -k "$cache" | tail -n 1) / 1048576))
    [ "$free_gb" -ge "$needs_gb" ] || missing "needs $needs_gb GB in $cache, $free_gb are free"
    "$python" -m venv "$dir/venv" >"$log" 2>&1 || missing "no virtual environment: $(tail -n 1 "$log")"
    # shellcheck disable=SC2086 # a list of requirements
    nice -n 5 "$dir/venv/bin/python" -m pip install -q --disable-pip-version-check $packages >>"$log" 2>&1 ||
        missing "pip install failed: $(grep -v '^$' "$log" | tail -n 1) (log: $log)"
    echo "$key" >"$dir/.complete"
fi
echo "$dir/venv/bin/python"
