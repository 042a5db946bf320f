#!/bin/bash
# Does the agent count exactly on this kernel? boot.sh VMLINUZ [PROGRAM] boots it in QEMU (software emulation) with an
# initramfs that holds this Python, the agent, the mock driver and programs that use it, runs check.py there, or another
# program of this directory, and prints what it says.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
python=$(readlink -f "$here/.venv/bin/python")
home=$("$here/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')
packages=$("$here/.venv/bin/python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))')
standard=$("$here/.venv/bin/python" -c 'import os; print(os.path.dirname(os.__file__))')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
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
cp "$here"/tests/standins/cuda/libcuda.so.1 "$here"/tests/programs/build/{launch_storm,small_program,small_driver.so} \
    "$here/tests/kernels/${2:-check.py}" "$root/work/"
# Every library that something in there needs.
find "$root" -type f \( -name '*.so*' -o -perm -100 \) -exec ldd {} \; 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' |
    grep -v "^$work" | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
cat >"$root/init" <<INIT
#!/bin/sh
busybox mount -t proc p /proc; busybox mount -t sysfs s /sys; busybox mount -t devtmpfs d /dev
busybox mkdir -p /dev/shm; busybox mount -t tmpfs t /dev/shm
export HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONHOME=$home PYTHONPATH=/work:/work/packages LD_LIBRARY_PATH=/work
$python /work/${2:-check.py}
busybox poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initramfs"
timeout 1200 qemu-system-x86_64 -accel tcg -cpu max -m 4G -smp 2 -display none -serial stdio -no-reboot \
    -kernel "$1" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" </dev/null | tr -d '\r' | grep -a '^check: '
