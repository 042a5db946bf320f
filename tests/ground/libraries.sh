#!/usr/bin/env bash
# Where are NVIDIA's libraries that launch kernels of their own? Prints a directory with libcublas.so.12,
# libcublasLt.so.12 and libnccl.so.2, unpacked once from PyPI (0.9 GB) and kept in the cache. When they cannot be had it
# says why on stderr, with exit status 77 (skip).
set -uo pipefail

packages="nvidia-cublas-cu12==12.9.1.4 nvidia-nccl-cu12==2.32.3"
needs_gb=4

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
dir=$cache/libraries
log=$cache/libraries.log

missing() {
    echo "libraries: $1" >&2
    exit 77
}

python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=python3

mkdir -p "$cache"
exec 9>"$cache/libraries.lock"
flock 9
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$packages" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || missing "built for Linux on x86-64 only, this is $(uname -sm)"
    free_gb=$(($(df --output=avail -k "$cache" | tail -n 1) / 1048576))
    [ "$free_gb" -ge "$needs_gb" ] || missing "needs $needs_gb GB in $cache, $free_gb are free"
    rm -rf "$dir" && mkdir -p "$dir" "$cache/wheels"
    # shellcheck disable=SC2086 # a list of requirements
    nice -n 5 "$python" -m pip download -q --no-deps -d "$cache/wheels" $packages >"$log" 2>&1 ||
        missing "pip download failed: $(tail -n 1 "$log") (log: $log)"
    "$python" - "$cache/wheels" "$dir" $packages >>"$log" 2>&1 <<'END' || missing "cannot be unpacked (log: $log)"
import pathlib, shutil, sys, zipfile

wheels, out, *packages = sys.argv[1:]
for package in packages:
    name, version = package.split("==")
    (wheel,) = pathlib.Path(wheels).glob(f"{name.replace('-', '_')}-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.rsplit("/", 1)[-1] in ("libcublas.so.12", "libcublasLt.so.12", "libnccl.so.2"):
                with archive.open(member) as source, open(pathlib.Path(out, member.rsplit("/", 1)[-1]), "wb") as target:
                    shutil.copyfileobj(source, target)
END
    echo "$packages" >"$dir/.complete"
fi
echo "$dir"
