#!/usr/bin/env bash
# Does CI's command pass from nothing? Runs .ci/run in a new clone with a new home: nothing cached, everything fetched again.
# Prints the time and the runner's closing line; the exit status is .ci/run's. It needs root, the network and 25 GB.
#
#   scripts/fresh_run.sh [COMMIT]      default: HEAD
#
# What comes with the machine stays: the distribution's packages that are installed, and pyenv's interpreters.
set -euo pipefail
top=$(git rev-parse --show-toplevel)
commit=$(git -C "$top" rev-parse --verify "${1:-HEAD}^{commit}")
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
mkdir "$work/home"
git clone -q "$top" "$work/project"
git -C "$work/project" checkout -q --detach "$commit"
[ -n "${PYENV_ROOT:-}" ] || { [ -d "$HOME/.pyenv" ] && export PYENV_ROOT=$HOME/.pyenv; } || true

# Whatever tells a package manager or a cache to be elsewhere would bring old files back.
for name in XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME PIP_CACHE_DIR UV_CACHE_DIR GOPATH GOCACHE GOMODCACHE GOBIN; do
    unset "$name"
done
# How registries are reached belongs to the machine.
for file in .pip .config/pip .config/go .npmrc .netrc; do
    [ ! -e "$HOME/$file" ] || { mkdir -p "$(dirname "$work/home/$file")" && cp -r "$HOME/$file" "$work/home/$file"; }
done

log=$top/build/fresh_run.log
mkdir -p "$top/build"
began=$(date +%s) status=0
(cd "$work/project" && HOME=$work/home CI=true bash .ci/run </dev/null >"$log" 2>&1) || status=$?
took=$(($(date +%s) - began))
printf '%s from nothing on %s: %d min %d s, exit status %d, %s\n' \
    "$(git -C "$top" rev-parse --short "$commit")" "$(date -u +%F)" $((took / 60)) $((took % 60)) $status "$(tail -n 1 "$log" | tr -d =)"
echo "log: $log"
exit $status
