# What does a virtual machine need that runs Python programs and the agent? Sourced, not run: `make_root DIRECTORY` fills the
# root directory of an initramfs, `add_libraries DIRECTORY` adds what the files in there are linked with, and `boot VMLINUZ
# DIRECTORY PROGRAM ...` runs Python programs there, one after the other, whose lines that begin with `check: ` are printed; it
# fails where a program or one of its checks does, or the machine ends before the last. All that it says goes to the file
# CONSOLE too, where that is set.
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
        --exclude='config-3*' --exclude=idlelib --exclude=lib2to3 --exclude=tkinter . | tar -C "$root$standard" -xf -
    (cd "$packages" && tar -cf - --exclude=__pycache__ --exclude='*/tests' numpy numpy.libs msgspec yaml hpack google opentelemetry \
        capstone elftools lz4 zstandard rich requests urllib3 idna certifi charset_normalizer typing_extensions.py) |
        tar -C "$root/work/packages" -xf -
    tar -C "$here" -cf - --exclude=__pycache__ otel_gpu | tar -C "$root/work" -xf -
    # Nothing is compiled in the machine, where that takes minutes, and every process anew.
    "$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$root$standard" "$root/work" || true
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
    local image=$1 root=$2 console=${CONSOLE:-$2.console} home
    shift 2
    home=$("$here/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')
    cat >"$root/init" <<INIT
#!/bin/sh
busybox mount -t proc p /proc; busybox mount -t sysfs s /sys; busybox mount -t devtmpfs d /dev
busybox mkdir -p /dev/shm; busybox mount -t tmpfs t /dev/shm; busybox ifconfig lo 127.0.0.1 up
ulimit -n 65536
export HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONHOME=$home PYTHONPATH=/work:/work/packages LD_LIBRARY_PATH=/work
[ ! -e /work/prepare.sh ] || sh /work/prepare.sh
for program in $*; do
    echo "check: \$program, \$(busybox cut -d ' ' -f 1 /proc/uptime) s after the machine's start"
    $python /work/\$program || echo "check: FAILED \$program"
done
echo "check: end"
busybox poweroff -f
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$root.cpio"
    # The emulator fails the kernel's tests of its own timer and ciphers at times, and QEMU 7.2 has the flags wrong where an interrupt
    # comes behind a cmpxchg16b, which ends the machine in a double fault: the kernel takes it for a CPU without (feature 141).
    timeout $((1200 * $#)) qemu-system-x86_64 -accel tcg -cpu max -m 4G -smp 2 -display none -serial stdio -no-reboot \
        -kernel "$image" -initrd "$root.cpio" -append "console=ttyS0 quiet panic=-1 no_timer_check edd=off mitigations=off cryptomgr.notests clearcpuid=141" </dev/null |
        stdbuf -oL tr -d '\r' | tee "$console" | grep -a --line-buffered '^check: ' || true
    if grep -aqE '^check: (.* )?(WRONG|FAILED|REFUSED)\b' "$console" ||
        [ "$(grep -a '^check: ' "$console" | tail -n 1)" != 'check: end' ]; then
        echo "$(basename "$image"): $* did not come to a good end; the last it said:" >&2
        tail -n 30 "$console" >&2
        return 1
    fi
}
