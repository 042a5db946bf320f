#!/usr/bin/env bash
# How does an installed package come to its own libbpf? Copies the distribution's libbpf, libelf and libz beside a
# library that loads exactly these: its run path is $ORIGIN and holds for what they need in turn (DT_RPATH).
# The distributions' static archives are no way: they are not compiled to be part of a shared library.
#
#   bundle_libbpf.sh DIRECTORY
set -euo pipefail

out=${1:?where to}
newest_glibc=2.34 # RHEL 9; Ubuntu 22.04 has 2.35, Debian 12 has 2.36

find_library() {
    ldconfig -p | awk -v name="$1" -v arch="$(uname -m | sed 's/x86_64/x86-64/;s/aarch64/AArch64/')" \
        '$1 == name && index($0, arch) { print $NF; exit }'
}

rm -rf "$out" && mkdir -p "$out/licenses"
libraries=()
pending=(libbpf.so.1)
while [ ${#pending[@]} -gt 0 ]; do
    name=${pending[0]}
    pending=("${pending[@]:1}")
    [ -e "$out/$name" ] && continue
    path=$(find_library "$name")
    [ -n "$path" ] || { echo "$name is not installed; run: make setup" >&2; exit 1; }
    cp -L "$path" "$out/$name"
    chmod 644 "$out/$name"
    libraries+=("$out/$name")
    real=$(readlink -f "$path")
    # Packages from before the merge of /lib into /usr/lib are still registered under the old name.
    package=$({ dpkg -S "$real" || dpkg -S "${real#/usr}"; } 2>/dev/null | sed 's/:.*//' | head -n 1 || true)
    if [ -n "$package" ] && [ -e "/usr/share/doc/$package/copyright" ]; then
        cp -L "/usr/share/doc/$package/copyright" "$out/licenses/$package"
    fi
    while read -r needed; do
        case $needed in
            libc.so.6 | ld-linux-* | libpthread.so.0 | libdl.so.2) ;;
            *) pending+=("$needed") ;;
        esac
    done < <(objdump -p "$path" | awk '$1 == "NEEDED" { print $2 }')
done

printf '' | "${CC:-cc}" -shared -nostdlib -o "$out/libotelgpu_bpf.so" -x c - -x none \
    -Wl,--no-as-needed "${libraries[@]}" -Wl,--disable-new-dtags -Wl,-rpath,'$ORIGIN' -Wl,-soname,libotelgpu_bpf.so

needs=$(objdump -T "$out"/*.so* | grep -o 'GLIBC_2[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
if [ "$(printf '%s\n' "$needs" "$newest_glibc" | sort -V | tail -n 1)" != "$newest_glibc" ]; then
    message="the bundled libraries need glibc $needs, a wheel promises $newest_glibc"
    [ -z "${OTEL_GPU_RELEASE:-}" ] || { echo "$message; build on Debian 12 or Ubuntu 22.04" >&2; exit 1; }
    echo "warning: $message: good for this machine only" >&2
fi
