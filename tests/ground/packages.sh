# What is unpacked from Debian's packages, never installed, and kept in the cache? Sourced, not run: `unpacked NAME PACKAGE...`
# makes the directory `dir`, once, with the packages' files in root/ and links to their headers and libraries, and prints
# it. When they cannot be had it says why on stderr, with exit status 77 (skip).
missing() {
    echo "$name: $1" >&2
    exit 77
}

unpacked() {
    name=$1 && shift
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
    local dir=$cache/$name log=$cache/$name.log package
    mkdir -p "$cache"
    exec 9>"$cache/$name.lock"
    flock 9
    if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$*" ]; then
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
            missing "Debian's tools are not here: apt-get, dpkg-deb"
        rm -rf "$dir" && mkdir -p "$dir/packages"
        (cd "$dir/packages" && nice -n 5 apt-get download "$@") >"$log" 2>&1 ||
            missing "apt-get download failed: $(tail -n 1 "$log") (log: $log)"
        for package in "$dir"/packages/*.deb; do
            dpkg-deb -x "$package" "$dir/root" >>"$log" 2>&1 || missing "cannot be unpacked: $package (log: $log)"
        done
        ln -s root/usr/include "$dir/include"
        ln -s "root/usr/lib/$(uname -m)-linux-gnu" "$dir/lib"
        rm -rf "$dir/packages"
        echo "$*" >"$dir/.complete"
    fi
    echo "$dir"
}
