# What does a virtual machine need that runs Python programs and the agent? Sourced, not run: `make_root DIRECTORY` fills the
# root directory of an initramfs, `add_libraries DIRECTORY` adds what the files in there are linked with, and `boot VMLINUZ
# DIRECTORY PROGRAM` runs a Python program there, whose lines that begin with `check: ` are printed. All that it says goes to
# the file CONSOLE too, where that is set.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=$(readlink -f "$here/.venv/bin/python")

make_root() {
    local root=$1 packages standard
    packages=$("$here/.venv/bin/python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))')
    standard=$("$here/.venv/bin/python" -c 'import os; print(os.path.dirname(os.__file__))')
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,work/packages,lib64}
    cp "$(command -v busybox)" "$root/bin/busybox"
    ln -s busybox "$root/bin/sh"
    ln -s busybox "$root/bin/sleep"
    mkdir -p "$root$(dirname "$python")" "$root$standard"
    cp "$python" "$root$python"
    tar -C "$standard" -cf - --exclude=test --exclude=site-packages --exclude=dist-packages --exclude=__pycache__ \
        --exclude='config-3*' --exclude=idlelib --exclude=tkinter . | tar -C "$root$standard" -xf -
    (cd "$packages" && tar -cf - --exclude=__pycache__ --exclude='*/tests' numpy numpy.libs msgspec yaml google opentelemetry \
        capstone elftools lz4 zstandard rich requests urllib3 idna certifi charset_normalizer typing_extensions.py) |
        tar -C "$root/work/packages" -xf -
    tar -C "$here" -cf - --exclude=__pycache__ otel_gpu | tar -C "$root/work" -xf -
}

add_libraries() {
    local root=$1 library
    find "$root" -type f \( -name '*.so*' -o -perm -100 \) -exec ldd {} \; 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' |
        grep -v "^$root" | sort -u | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}

boot() {
    local image=$1 root=$2 program=$3 home
    home=$("$here/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')
    cat >"$root/init" <<INIT
#!/bin/sh
busybox mount -t proc p /proc; busybox mount -t sysfs s /sys; busybox mount -t devtmpfs d /dev
busybox mkdir -p /dev/shm; busybox mount -t tmpfs t /dev/shm
export HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONHOME=$home PYTHONPATH=/work:/work/packages LD_LIBRARY_PATH=/work
[ ! -e /work/prepare.sh ] || sh /work/prepare.sh
$python /work/$program
busybox poweroff -f
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$root.cpio"
    # The emulator fails the kernel's tests of its own timer and ciphers at times.
    timeout 1200 qemu-system-x86_64 -accel tcg -cpu max -m 4G -smp 2 -display none -serial stdio -no-reboot \
        -kernel "$image" -initrd "$root.cpio" -append "console=ttyS0 quiet panic=-1 no_timer_check edd=off mitigations=off cryptomgr.notests" </dev/null |
        stdbuf -oL tr -d '\r' | tee "${CONSOLE:-/dev/null}" | grep -a --line-buffered '^check: '
}
