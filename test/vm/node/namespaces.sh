# Makes a folder the root of new namespaces, and goes on with its init. $1 is the folder, $2 the name of control groups.
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
# A group of the name in each hierarchy is all that is seen of control groups.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	mount --bind "/sys/fs/cgroup/$2" sys/fs/cgroup
else
	mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
	for hierarchy in cpu cpuacct cpuset memory devices freezer blkio pids; do
		mkdir "sys/fs/cgroup/$hierarchy"
		mount --bind "/sys/fs/cgroup/$hierarchy/$2" "sys/fs/cgroup/$hierarchy"
	done
fi
# What a kubelet wants of the kernel, it finds as it wants it, and leaves the machine's own as it is.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	file="mnt/$(echo "${setting%=*}" | tr / .)"
	echo "${setting#*=}" >"$file"
	mount --bind "$file" "proc/sys/${setting%=*}"
done
pivot_root . mnt/host
umount -l mnt/host
exec /sbin/native-init
