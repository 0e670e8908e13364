// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strings"
)

// What SELinux does with modules, as far as it tells: its denials are in the audit log, which is
// auditd's, and not in the kernel's.
const (
	// SELinuxEnforces is a line for a call that SELinux may have denied with EACCES.
	SELinuxEnforces = "SELinux is enforcing"
	// SELinuxForbids is a line for one that its boolean secure_mode_insmod denies with EPERM.
	SELinuxForbids = "SELinux is enforcing, and its boolean secure_mode_insmod is on"
)

// hostFile returns a file of the host without blanks around it.
type hostFile func(name string) (string, error)

// loadsByLabel tells whether the kernel decides by a file's SELinux label whether a module may be
// loaded from it. Where LoadPin is enforced, it decides by where the file lies: no copy would do.
func loadsByLabel(read hostFile) bool {
	pinned, err := read("proc/sys/kernel/loadpin/enforce")
	return seLinux(read) && (err != nil || pinned == "0")
}

// packing of the modules that modprobe finds, of modprobe.Packings: one that this kernel does not
// unpack, where modprobe is to hand them over by init_module(2).
func packing(read hostFile) string {
	if !loadsByLabel(read) {
		return ""
	}
	if kernels, err := read("sys/module/compression"); err == nil && kernels == "zstd" {
		return "xz"
	}
	return "zstd"
}

// seLinux tells whether it is on: only then the kernel knows its file system. It may be permissive,
// or without a policy, which it then gets while the node starts.
func seLinux(read hostFile) bool {
	list, err := read("proc/filesystems")
	return err == nil && slices.Contains(strings.Fields(list), "selinuxfs")
}

// seLinuxSays is what to know of SELinux beside a kernel call's error, as a line of the log.
func seLinuxSays(read hostFile, errno string) []string {
	if !seLinux(read) {
		return nil
	}
	if mode, err := read("sys/fs/selinux/enforce"); err == nil && mode == "0" {
		return nil
	}
	switch errno {
	case "EACCES":
		return []string{SELinuxEnforces}
	case "EPERM":
		// What it is, and what it becomes with the next commit.
		if now, err := read("sys/fs/selinux/booleans/secure_mode_insmod"); err == nil && strings.HasPrefix(now, "1") {
			return []string{SELinuxForbids}
		}
	}
	return nil
}
