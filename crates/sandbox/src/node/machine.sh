#!/bin/sh
# The first process of a real node: a machine of its own as far as the kernel can make one, in new
# mount, process, network, host name, IPC and control group namespaces. When it dies, the kernel ends
# every process of the node and takes the mounts and interfaces with them.
#
#   sh machine.sh DIRECTORY HOSTNAME v1|v2 CONTROLLERS...
set -eu
directory=$1
hostname=$2
hierarchy=$3
shift 3

# The machine's own /run, /var/lib and /var/log; its directory is at /run/node, whatever lies on top
# of where it really is. (-n: there is no /run/mount to keep a table in.)
mount -n -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/node /mnt/lock
mount -n --bind "$directory" /mnt/node
mount -n --move /mnt /run
mount -n --bind /run/node/lib /var/lib
mount -n --bind /run/node/log /var/log

# A /sys that shows this network namespace, and control groups that begin at this machine's own.
umount -n -l -R /sys
mount -n -t sysfs sysfs /sys
if [ "$hierarchy" = v2 ]; then
    mount -n -t cgroup2 cgroup2 /sys/fs/cgroup
    for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || echo "without controller $controller" >&2
    done
else
    mount -n -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controllers in "$@"; do
        mkdir "/sys/fs/cgroup/$controllers"
        mount -n -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers"
    done
fi

# Settings of the whole kernel that a kubelet would change: it finds them as it wants them.
mkdir /run/settings
pretend() {
    [ -e "/proc/sys/$1" ] || return 0
    file=/run/settings/$(echo "$1" | tr / .)
    echo "$2" >"$file"
    mount -n --bind "$file" "/proc/sys/$1"
}
pretend vm/overcommit_memory 1
pretend vm/panic_on_oom 0
pretend kernel/panic 10
pretend kernel/panic_on_oops 1
pretend kernel/keys/root_maxkeys 1000000
pretend kernel/keys/root_maxbytes 25000000

# Mounts of containers propagate inside of the machine, and not out of it.
mount -n --make-rshared /

echo "$hostname" >/proc/sys/kernel/hostname
echo 1 >/proc/sys/net/ipv4/ip_forward

: >/run/node/ready
# The shell reaps whatever is orphaned in here while it waits.
sleep 2147483647 &
while :; do wait $! || true; done
