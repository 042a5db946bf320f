#!/usr/bin/env bash
# Which Python has vLLM? Prints the interpreter of a virtual environment with vLLM 0.32, made once by `vllm.sh install`
# (8 GB, from PyPI) and kept in the cache. Where it is not, or cannot be had, it says why on stderr, with exit status 77.
set -uo pipefail

# cuda-python 12, which the other packages' requirements lead to, writes over files of the newer cuda-bindings.
packages="vllm==${VLLM:-0.32.0} cuda-python>=13,<14"
python=3.11
needs_gb=12

cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
dir=$cache/vllm${VLLM:+-$VLLM}
log=$cache/vllm.log

missing() {
    echo "vllm: $1" >&2
    exit 77
}

mkdir -p "$cache"
exec 9>"$cache/vllm.lock"
flock 9
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$packages" ]; then
    [ "${1:-}" = install ] || missing "is not installed; \`tests/ground/vllm.sh install\` does it, once, with 8 GB"
    [ "$(uname -sm)" = "Linux x86_64" ] || missing "built for Linux on x86-64 only, this is $(uname -sm)"
    rm -rf "$dir"
    free_gb=$(($(df --output=avail -k "$cache" | tail -n 1) / 1048576))
    [ "$free_gb" -ge "$needs_gb" ] || missing "needs $needs_gb GB in $cache, $free_gb are free"
    python3 -m venv "$dir/installer" >"$log" 2>&1 && "$dir/installer/bin/pip" install -q uv >>"$log" 2>&1 ||
        missing "no installer: $(tail -n 1 "$log")"
    uv=$dir/installer/bin/uv
    export UV_CACHE_DIR=$dir/downloads
    "$uv" venv -q --python $python "$dir/venv" >>"$log" 2>&1 || missing "no Python $python: $(tail -n 1 "$log")"
    read -ra words <<<"$packages"
    printf 'cuda-python>=13,<14\n' >"$dir/overrides"
    nice -n 5 "$uv" pip install -q --python "$dir/venv/bin/python" --override "$dir/overrides" "${words[@]}" >>"$log" 2>&1 ||
        missing "installation failed: $(tail -n 1 "$log") (log: $log)"
    rm -rf "$dir/downloads"
    echo "$packages" >"$dir/.complete"
fi
echo "$dir/venv/bin/python"
