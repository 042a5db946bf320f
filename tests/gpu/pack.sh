#!/usr/bin/env bash
# What must be carried to a machine without network? Fetches wheels of what the agent needs at run time into
# .gpu-wheels/, and lists the built files to carry beside them. The machine's own Python brings PyTorch, Triton, CuPy
# and NumPy, which are left out.
#
#   tests/gpu/pack.sh [PYTHON_VERSION]      3.12 when left out; the machine's, as `python3 --version` says there
set -euo pipefail

version=${1:-3.12}
limit_mib=60
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=python3
folder=.gpu-wheels

# From pyproject.toml, so that there is one list.
needs=$("$python" - <<'PY'
import pathlib, re

text = pathlib.Path("pyproject.toml").read_text()
block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)[1]
names = re.findall(r'^\s*"([^"]+)"', block, re.MULTILINE)
print("\n".join(name for name in names if not name.startswith("numpy")))
PY
)
platforms=()
for glibc in 2_28 2_27 2_26 2_24 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
for name in 2014 2010 1; do platforms+=(--platform "manylinux${name}_x86_64"); done

rm -rf "$folder"
mkdir "$folder"
# pytest-timeout, for pyproject.toml sets its option.
mapfile -t wanted < <(printf '%s\n' "$needs" pytest pytest-timeout)
"$python" -m pip download -q --disable-pip-version-check --only-binary=:all: --python-version "$version" \
    --implementation cp "${platforms[@]}" -d "$folder" "${wanted[@]}"
rm -f "$folder"/numpy-*

echo "carry these, ignored by git, with the tree:"
carried=("$folder" otel_gpu/bpf/objects otel_gpu/bpf/lib)
for path in "${carried[@]}"; do
    [ -n "$(ls -A "$path" 2>/dev/null)" ] || { echo "pack.sh: $path is missing or empty; run make bpf libbpf" >&2; exit 1; }
    du -sh --apparent-size "$path"
done
total=$(du -sm --apparent-size -c "${carried[@]}" | tail -1 | cut -f1)
echo "$total MiB together"
[ "$total" -lt "$limit_mib" ] || { echo "pack.sh: that is over $limit_mib MiB" >&2; exit 1; }
