#!/bin/bash
# Which other kernels can be booted here? Prints "release<TAB>vmlinuz" for each of the suites named (default: bullseye,
# bookworm, trixie, sid): Debian's cloud kernels 5.10, 6.1, 6.12, 7.2, unpacked into the cache, never installed. With
# --modules first: Debian's ordinary kernels, which have RDMA, and their modules beside them in root/.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu/kernels
kind='cloud-amd64' kept=''
if [ "${1:-}" = --modules ]; then
    kind='amd64' kept=-modules
    shift
fi
skip() {
    echo "kernels.sh: $1" >&2
    exit 77
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "needs apt-get and dpkg-deb"
mirror=$(apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
[ -n "$mirror" ] || skip "apt on this machine reads no Debian mirror"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in "${@:-bullseye bookworm trixie sid}"; do
    for one in $suite; do
        dir=$cache/$one$kept
        if ! compgen -G "$dir/vmlinuz-*" >/dev/null; then
            rm -rf "$dir"
            mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial"
            echo "deb [signed-by=$keyring] $mirror $one main" >"$dir/apt/sources.list"
            apt=(-q -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
                -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt" -o APT::Sandbox::User=root)
            apt-get "${apt[@]}" update >"$dir/log" 2>&1 || skip "$one cannot be read: $(tail -n 1 "$dir/log")"
            package=$(apt-cache "${apt[@]}" search --names-only "^linux-(image|binary)-[0-9.-]+(\+deb[0-9]+)?-$kind\$" |
                awk '{print $1}' | sort -V | head -n 1)
            [ -n "$package" ] || skip "$one has no kernel of the kind $kind"
            (cd "$dir" && apt-get "${apt[@]}" download "$package" >>log 2>&1) || skip "$package cannot be had"
            dpkg-deb -x "$dir"/*.deb "$dir/root"
            # Newer packages keep the kernel beside its modules.
            image=$(find "$dir/root" -name 'vmlinuz*' -type f | head -n 1)
            [ -n "$image" ] || skip "$package holds no kernel"
            release=$(basename "$image") && release=${release#vmlinuz}
            release=${release#-} && release=${release:-$(basename "$(dirname "$image")")}
            mv "$image" "$dir/vmlinuz-$release"
            rm -rf "$dir/apt" "$dir"/*.deb
            [ -n "$kept" ] || rm -rf "$dir/root"
        fi
        for image in "$dir"/vmlinuz-*; do
            printf '%s\t%s\n' "${image##*vmlinuz-}" "$image"
        done
    done
done
