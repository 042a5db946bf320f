#!/bin/bash
# Does the agent see real RDMA as it is? boot.sh VMLINUZ boots a kernel that has soft-RoCE (`tests/ground/kernels.sh --modules
# bookworm`) in QEMU (software emulation), with two devices over a pair of virtual links, and runs check.py there.
set -euo pipefail
. "$(dirname "$0")/../kernels/machine.sh"
verbs=$("$here/tests/ground/verbs.sh")
modules=$(dirname "$1")/root/lib/modules
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
make_root "$root"
mkdir -p "$root"/{modules,etc/libibverbs.d,usr/lib/x86_64-linux-gnu/libibverbs,usr/sbin,usr/bin}
libraries=$verbs/lib:$verbs/root/lib/x86_64-linux-gnu
gcc -O2 -Wall -I"$verbs/include" -o "$root/work/traffic" "$here/tests/soft_roce/traffic.c" \
    -L"$verbs/lib" -libverbs -Wl,-rpath-link,"$libraries"
cp "$here"/tests/soft_roce/{check.py,prepare.sh} "$root/work/"
cp -L "$verbs"/lib/libibverbs/librxe-rdmav34.so "$root/usr/lib/x86_64-linux-gnu/libibverbs/"
cp -L "$verbs"/lib/{libibverbs.so.1.14.44.0,libnl-route-3.so.200} "$verbs"/root/lib/x86_64-linux-gnu/libnl-3.so.200 "$root/work/"
ln -s libibverbs.so.1.14.44.0 "$root/work/libibverbs.so.1"
echo "driver rxe" >"$root/etc/libibverbs.d/rxe.driver"
cp "$(command -v ip)" "$(command -v tc)" "$root/usr/sbin/"
cp "$(command -v rdma)" "$root/usr/bin/"
add_libraries "$root"
release=$(basename "$modules"/*)
[ -e "$modules/$release/modules.dep.bin" ] || depmod -b "$(dirname "$1")/root" "$release"
# Where a module comes before those that need it; crc32_generic is asked for by name, not as a dependency.
for module in crc32_generic rdma_rxe veth sch_netem; do
    modprobe -d "$(dirname "$1")/root" -S "$release" --show-depends "$module" | awk '/^insmod/ {print $2}'
done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$root/modules/"
    basename "$file" >>"$root/modules/order"
done
boot "$1" "$root" check.py
