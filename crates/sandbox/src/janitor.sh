#!/bin/sh
# Removes one sandbox: processes, interfaces, routes, control groups, directory. Runs in three
# situations, always the same way: when its owner closes our standard input (the sandbox ends), when
# the owner dies (the kernel closes it), and when someone finds a sandbox without an owner.
#
#   sh janitor.sh DIRECTORY IDENTITY HARDWARE-ADDRESS METRIC wait|now
#
# IDENTITY is unique to one sandbox of one start. The hardware address of its bridge and the metric of
# its routes follow from it. Nothing that does not carry one of the three is touched.
set -u
directory=$1
identity=$2
hardware=$3
metric=$4

# Whether the directory is still this sandbox's: it may be gone, and another one in its place.
is_ours() {
    [ "$(cat "$directory/identity" 2>/dev/null)" = "$identity" ]
}

goodbye=
if [ "$5" = wait ]; then
    # Returns when the other end is closed. An owner that ends in order says so first.
    goodbye=$(cat)
    # (A redirection that fails ends a shell if it is that of a special built-in, as `:` and `exec` are:
    # on a full disk, or when the directory goes in this moment, we must go on all the same.)
    if is_ours && true >"$directory/closing" 2>/dev/null && true >>"$directory/lock"; then
        # The owner's lock goes with the owner or is given up by it. From then on the directory is ours.
        exec 9<"$directory/lock"
        flock 9
    fi
fi

# Kills what is left; fails as long as there was something.
end_processes() {
    left=0
    # What was forked by a dying owner, or has made itself independent, has the mark all the same.
    # (A zombie has no environment any more.)
    for environment in $(grep -lszxF "KUBEOCEAN_SANDBOX=$identity" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${environment#/proc/}
        kill -KILL "${pid%/environ}" 2>/dev/null
        left=1
    done
    for procs in $(find /sys/fs/cgroup -path "*/kubeocean/$identity/*" -name cgroup.procs 2>/dev/null); do
        while read -r pid; do
            kill -KILL "$pid" 2>/dev/null
            left=1
        done <"$procs"
    done
    return $left
}

end_all_processes() {
    tries=0
    until end_processes || [ $tries -ge 200 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}

end_all_processes

for interface in /sys/class/net/ko*; do
    if [ "$(cat "$interface/address" 2>/dev/null)" = "$hardware" ]; then
        ip link delete "${interface##*/}"
    fi
done
if command -v ip >/dev/null; then
    ip -4 -o route show type unreachable 2>/dev/null | grep -w "metric $metric" | while read -r _ range _; do
        ip route delete unreachable "$range" metric "$metric"
    done
fi

# Control groups, deepest first; those of containers go when their last process is reaped.
tries=0
while :; do
    groups=$(find /sys/fs/cgroup -depth -type d \( -path "*/kubeocean/$identity" -o -path "*/kubeocean/$identity/*" \) 2>/dev/null)
    if [ -z "$groups" ] || [ $tries -ge 100 ]; then break; fi
    for group in $groups; do rmdir "$group" 2>/dev/null; done
    tries=$((tries + 1))
    [ $tries -gt 1 ] && sleep 0.05
done
# The common parent goes with the last sandbox.
for parent in /sys/fs/cgroup/kubeocean /sys/fs/cgroup/*/kubeocean; do
    [ -d "$parent" ] && rmdir "$parent" 2>/dev/null
done

if is_ours; then
    # First the name, in one step: it is free from now on. Then the files.
    gone=$(dirname "$directory")/.gone-$identity
    [ "$directory" = "$gone" ] || mv -T -- "$directory" "$gone" || exit 1
    rm -rf -- "$gone"
fi

# An owner that was killed may have forked in its last moment. Give that child time to show its mark.
if [ "$5" = wait ] && [ "$goodbye" != goodbye ]; then
    sleep 0.5
    end_all_processes
fi
exit 0
