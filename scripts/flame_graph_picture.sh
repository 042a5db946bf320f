#!/usr/bin/env bash
# How is the README's picture made? The demo's flame graph, as a headless Chromium shows it. Root, after `make demo`.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
picture=${1:-$root/docs/images/flame-graph.png}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome ||
    command -v chromium-headless-shell) || {
    echo "no Chromium on PATH: install the package chromium" >&2
    exit 1
}
"$root/.venv/bin/otel-gpu" demo --duration 10 -o "$work/demo.html" >&2
# Virtual time lets the page finish its transitions.
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/browser" \
    --virtual-time-budget=3000 --window-size=1400,610 --screenshot="$work/demo.png" "file://$work/demo.html" 2>/dev/null
mv "$work/demo.png" "$picture"
ls -l "$picture"
