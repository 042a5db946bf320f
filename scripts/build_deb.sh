#!/usr/bin/env bash
# Builds dist/otel-gpu_VERSION_ARCH.deb from the wheel in dist/: build_deb.sh [DIRECTORY], which holds the wheel and gets the package.
#
# The package holds the command with its dependencies as an environment below /opt/otel-gpu for the python3 of the release that this
# runs on, the service, its configuration, the manual page and completions. Needs dpkg-deb, python3-venv, and an index for pip.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
dist=$(cd "${1:-$tree/dist}" && pwd)
wheels=("$dist"/otel_gpu-*.whl)
[[ -e ${wheels[0]} ]] || { echo "there is no otel_gpu-*.whl in $dist; run \`make wheel\` first" >&2; exit 1; }
[[ ${#wheels[@]} = 1 ]] || { printf 'there is more than one wheel, and one package is built of one: %s\n' "${wheels[*]}" >&2; exit 1; }
python=/usr/bin/python3
root=$(mktemp -d)
package=
trap 'rm -rf "$root" ${package:+"$package.part"}' EXIT
chmod 755 "$root"
umask 022

installed=/opt/otel-gpu
"$python" -m venv "$root$installed"
"$root$installed/bin/pip" install --quiet --disable-pip-version-check --no-compile "${wheels[0]}[prometheus,view]"
version=$("$root$installed/bin/python3" -c 'from importlib.metadata import version; print(version("otel-gpu"))')
"$root$installed/bin/pip" uninstall --quiet --yes setuptools 2>/dev/null || true
"$root$installed/bin/pip" uninstall --quiet --yes pip
# What pip and venv have written says where this was built, and where the wheel lay.
rm "$root$installed"/lib/python3*/site-packages/otel_gpu-*.dist-info/direct_url.json
sed -i '/direct_url\.json,/d' "$root$installed"/lib/python3*/site-packages/otel_gpu-*.dist-info/RECORD
grep -rlIZ --exclude-dir=site-packages "$root" "$root$installed" | xargs -0r sed -i "s#$root##g"
find "$root$installed/bin" -name 'activate*' -o -name 'Activate*' | xargs -r rm
find "$root$installed" -name __pycache__ -prune -exec rm -rf {} +
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" -p / "$root$installed/lib" >/dev/null || true

site=$(echo "$root$installed"/lib/python3*/site-packages)
install -D -m 644 "$tree/deploy/systemd/otel-gpu.service" "$root/usr/lib/systemd/system/otel-gpu.service"
install -D -m 644 "$tree/examples/agent.yaml" "$root/etc/otel-gpu.yaml"
sed -i '1s#: otel-gpu run.*#, as the service otel-gpu runs: systemctl restart otel-gpu#' "$root/etc/otel-gpu.yaml"
install -D -m 644 "$tree/LICENSE" "$root/usr/share/doc/otel-gpu/copyright"
gzip -9nc "$tree/CHANGELOG.md" | install -D -m 644 /dev/stdin "$root/usr/share/doc/otel-gpu/changelog.gz"
gzip -9nc "$site/otel_gpu/cli/completions/otel-gpu.1" | install -D -m 644 /dev/stdin "$root/usr/share/man/man1/otel-gpu.1.gz"
install -D -m 644 "$site/otel_gpu/cli/completions/otel-gpu" "$root/usr/share/bash-completion/completions/otel-gpu"
install -D -m 644 "$site/otel_gpu/cli/completions/_otel-gpu" "$root/usr/share/zsh/vendor-completions/_otel-gpu"
install -D -m 644 "$site/otel_gpu/cli/completions/otel-gpu.fish" "$root/usr/share/fish/vendor_completions.d/otel-gpu.fish"
mkdir -p "$root/usr/bin"
ln -s "$installed/bin/otel-gpu" "$root/usr/bin/otel-gpu"

minor=$("$python" -c 'import sys; print(sys.version_info.minor)')
architecture=$(dpkg --print-architecture)
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<EOF
Package: otel-gpu
Version: $version
Architecture: $architecture
Maintainer: The otel-gpu authors <otel-gpu@localhost>
Section: admin
Priority: optional
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), libc6 (>= 2.34), libstdc++6, passwd
Installed-Size: $(du -sk --exclude DEBIAN "$root" | cut -f1)
Description: OpenTelemetry agent for GPU programs, by eBPF
 Observes what programs ask of the GPU (kernel launches, copies, memory,
 waits, NCCL, RDMA) from outside and while they run, and exports metrics,
 profiles and traces by OTLP. No change to the programs and no restart.
EOF
echo /etc/otel-gpu.yaml >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/postinst" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    getent group otel-gpu >/dev/null || groupadd --system otel-gpu
    getent passwd otel-gpu >/dev/null || useradd --system --gid otel-gpu --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin otel-gpu
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        # An update goes on with what ran; the first installation starts nothing: /etc/otel-gpu.yaml is read first.
        # A service that does not start, for its configuration perhaps, leaves no package half installed.
        systemctl try-restart otel-gpu.service || true
    fi
    [ -n "$2" ] || echo "otel-gpu: see what this host can do with \`otel-gpu doctor\`, then systemctl enable --now otel-gpu"
fi
EOF
cat >"$root/DEBIAN/prerm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now otel-gpu.service || true
fi
EOF
cat >"$root/DEBIAN/postrm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = purge ]; then
    rm -rf /var/cache/otel-gpu /var/lib/otel-gpu
    if getent passwd otel-gpu >/dev/null; then userdel otel-gpu; fi
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
EOF
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$root/DEBIAN/postrm"
package="$dist/otel-gpu_${version}_$architecture.deb"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(stat -c %Y "${wheels[0]}")} dpkg-deb --root-owner-group -Zzstd --build "$root" "$package.part" >/dev/null
# Whole or not at all: compressing takes minutes.
mv "$package.part" "$package"
echo "$package"
