# Run in the virtual machine: two devices of soft-RoCE, rxe0 and rxe1, whose packets go over a pair of virtual links. What one
# host sends to itself does not leave it: both addresses are taken out of the local table, and are local only for what
# comes in by the other's link.
set -eu
export PATH=/usr/sbin:/usr/bin:/bin
for module in $(busybox cat /modules/order); do busybox insmod "/modules/$module" 2>/dev/null || true; done
ulimit -l unlimited
/usr/sbin/ip link set lo up
/usr/sbin/ip link add v0 type veth peer name v1
for i in 0 1; do
    /usr/sbin/ip addr add "10.9.0.$((i + 1))/24" dev "v$i"
    /usr/sbin/ip link set "v$i" mtu 4200 up
done
for where in all default v0 v1; do
    echo 0 >/proc/sys/net/ipv4/conf/$where/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/$where/accept_local
done
for i in 0 1; do
    peer=$((1 - i))
    /usr/sbin/ip rule add pref 0 iif "v$i" lookup "$((100 + i))"
    /usr/sbin/ip route add local "10.9.0.$((i + 1))" dev "v$i" table "$((100 + i))"
    /usr/sbin/ip route del local "10.9.0.$((i + 1))" dev "v$i" table local
    /usr/sbin/ip route del 10.9.0.0/24 dev "v$i"
    /usr/sbin/ip neigh replace "10.9.0.$((peer + 1))" lladdr "$(busybox cat /sys/class/net/v$peer/address)" dev "v$i" nud permanent
done
for i in 0 1; do
    /usr/sbin/ip route add "10.9.0.$((2 - i))/32" dev "v$i"
    rdma link add "rxe$i" type rxe netdev "v$i"
done
# Devices' files, where nothing makes them.
if [ ! -e /dev/infiniband/uverbs0 ]; then
    busybox mkdir -p /dev/infiniband
    for i in 0 1; do
        number=$(busybox cat /sys/class/infiniband_verbs/uverbs$i/dev)
        busybox mknod /dev/infiniband/uverbs$i c "${number%:*}" "${number#*:}"
    done
fi
