#!/bin/busybox sh
# The guest's first process: makes this machine's files the root, with a layer in memory over them, and goes on there.
box=/bin/busybox
say() { echo "guest: $*" >/dev/ttyS0; }
fail() { say "$* failed"; $box poweroff -f; }
$box mkdir -p /proc /sys /dev /low /up /root
$box mount -t proc proc /proc
$box mount -t sysfs sysfs /sys
$box mount -t devtmpfs devtmpfs /dev
while read -r module; do
    $box insmod "/$module" || fail "loading $module"
done </modules
$box mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=1048576 host /low || fail "the host's files: mount"
$box mount -t tmpfs tmpfs /up
$box mkdir /up/upper /up/work
$box mount -t overlay -o lowerdir=/low,upperdir=/up/upper,workdir=/up/work overlay /root || fail "the layer: mount"
for place in proc sys dev; do
    $box mount --move /$place /root/$place
done
$box mount -t tmpfs tmpfs /root/run
$box mkdir -p /root/run/guest /root/dev/pts /root/dev/shm /root/lib/modules
$box mount -t devpts devpts /root/dev/pts
$box mount -t tmpfs tmpfs /root/dev/shm
$box cp /bin/busybox /start /root/run/guest/
exec $box switch_root /root /bin/sh /run/guest/start
