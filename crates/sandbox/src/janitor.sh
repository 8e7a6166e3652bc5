#!/bin/sh
# Removes one sandbox: processes, interfaces, routes, control groups, directory. Runs in three
# situations, always the same way: when its owner closes our standard input (the sandbox ends), when
# the owner dies (the kernel closes it), and when someone finds a directory without an owner.
#
#   sh janitor.sh DIRECTORY IDENTITY wait|now
#
# IDENTITY is unique to one sandbox of one start; nothing without it is touched.
set -u
directory=$1
identity=$2

if [ "$3" = wait ]; then
    # Nothing is ever written there: this returns when the other end is closed.
    cat >/dev/null
    : >"$directory/closing" 2>/dev/null || exit 0
    # The owner's lock goes with the owner or is given up by it. From then on the directory is ours.
    exec 9>>"$directory/lock" || exit 0
    flock 9
fi

# "PID START-TIME" per file: a number that another process has got meanwhile has another start time.
still_running() {
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    stat=${stat##*) }
    # shellcheck disable=SC2086
    set -- "$2" $stat
    [ "$2" != Z ] && [ "${21}" = "$1" ]
}

end_processes() {
    left=0
    for file in "$directory"/pids/*; do
        [ -f "$file" ] || continue
        read -r pid start <"$file" || continue
        if still_running "$pid" "$start"; then
            kill -KILL "$pid" 2>/dev/null
            left=1
        fi
    done
    for procs in $(find /sys/fs/cgroup -path "*/kubeocean/$identity/*" -name cgroup.procs 2>/dev/null); do
        while read -r pid; do
            kill -KILL "$pid" 2>/dev/null
            left=1
        done <"$procs"
    done
    return $left
}

tries=0
until end_processes || [ $tries -ge 200 ]; do
    tries=$((tries + 1))
    sleep 0.05
done

# The bridge is known by its hardware address, which no other sandbox has.
if [ -f "$directory/network" ]; then
    read -r bridge range hardware <"$directory/network"
    if [ "$(cat "/sys/class/net/$bridge/address" 2>/dev/null)" = "$hardware" ]; then
        ip link delete "$bridge"
        ip route delete unreachable "$range" 2>/dev/null
    fi
fi

# Control groups, deepest first; those of containers go when their last process is reaped.
tries=0
while :; do
    groups=$(find /sys/fs/cgroup -depth -type d \( -path "*/kubeocean/$identity" -o -path "*/kubeocean/$identity/*" \) 2>/dev/null)
    [ -n "$groups" ] && [ $tries -lt 100 ] || break
    for group in $groups; do rmdir "$group" 2>/dev/null; done
    tries=$((tries + 1))
    [ $tries -gt 1 ] && sleep 0.05
done
# The common parent goes with the last sandbox.
for parent in /sys/fs/cgroup/kubeocean /sys/fs/cgroup/*/kubeocean; do
    [ -d "$parent" ] && rmdir "$parent" 2>/dev/null
done

rm -rf -- "$directory"
exit 0
