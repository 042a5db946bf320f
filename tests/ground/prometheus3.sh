#!/usr/bin/env bash
# Where is a Prometheus that keeps native histograms for good? Prints a directory with prometheus and promtool 3.15, built once
# from the Go module proxy (5 minutes on two idle cores) as tests/ground/prometheus3/ pins it. When it cannot be had it says why on
# stderr, with exit status 77 (skip).
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
module=$here/prometheus3
dir=$cache/prometheus3
log=$cache/prometheus3.log
programs=github.com/prometheus/prometheus/cmd

missing() {
    echo "prometheus3: $1" >&2
    exit 77
}

mkdir -p "$cache"
exec 9>"$cache/prometheus3.lock"
flock 9
key=$(cat "$module/go.mod" "$module/go.sum" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$key" ]; then
    go=$("$here/setup.sh" go | cut -f2)
    [ -n "$go" ] || missing "no Go to build it with"
    rm -rf "$dir" && mkdir -p "$dir/src"
    cp "$module/go.mod" "$module/go.sum" "$module/tools.go" "$dir/src/"
    (cd "$dir/src" && CGO_ENABLED=0 nice -n 10 "$go" build -mod=readonly -buildvcs=false -trimpath -ldflags='-s -w' \
        -o "$dir/" "$programs/prometheus" "$programs/promtool") >"$log" 2>&1 ||
        missing "go build failed: $(grep -v '^$' "$log" | tail -n 1) (log: $log)"
    rm -rf "$dir/src"
    echo "$key" >"$dir/.complete"
fi
echo "$dir"
