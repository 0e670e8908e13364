// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// SELinux is a policy for nodes, and what labels their files.
type SELinux struct {
	dir string
	// Policy is the file that the kernel takes.
	Policy string
}

// seLinuxPackages are of Debian 13: its policy knows containers. Nothing of them is installed here.
var seLinuxPackages = []string{
	"libaudit1", "libbz2-1.0", "libc6", "libcap-ng0", "libgcc-s1", "libpcre2-8-0", "libselinux1", "libsemanage-common", "libsemanage2",
	"libsepol2",
	"policycoreutils", // semodule, setfiles
	"selinux-policy-default",
	"selinux-utils", // sefcontext_compile
}

const seLinuxStore = "default"

// policyVersion is the newest that Linux 6.1 takes.
const policyVersion = "policy-version = 33\n"

// ours keeps the node's own programs out of it: its first process and the kubelet are not started
// as a distribution does it, and stay what the kernel calls itself. What they and the container
// runtime may do is not what is tried.
const ours = "(typepermissive kernel_t)\n(typepermissive container_engine_t)\n"

// ContainerSELinux allows what container-selinux does, which RHEL and Fedora have, and Debian's
// policy does not: a privileged container loads kernel modules from what it makes in memory, and
// from containers' files. (There, both have one label.)
const ContainerSELinux = `(allow spc_t container_tmpfs_t (system (module_load)))
(allow spc_t container_file_t (system (module_load)))
`

// SELinux makes Debian's policy with more rules, in CIL.
func (c *Cache) SELinux(ctx context.Context, rules string) (*SELinux, error) {
	inputs := append([]string{"1", policyVersion, ours, rules}, seLinuxPackages...)
	dir, err := c.Entry(ctx, "selinux", inputs, func(ctx context.Context, dir string) error { return makeSELinux(ctx, dir, ours+rules) })
	if err != nil {
		return nil, err
	}
	policies, err := filepath.Glob(filepath.Join(dir, "etc/selinux", seLinuxStore, "policy/policy.33"))
	if err != nil || len(policies) != 1 {
		return nil, errors.Join(errors.New("semodule made no policy"), err)
	}
	return &SELinux{dir: dir, Policy: policies[0]}, nil
}

func makeSELinux(ctx context.Context, dir, rules string) error {
	apt, err := os.MkdirTemp(filepath.Dir(dir), "apt-")
	if err != nil {
		return fmt.Errorf("make folders for apt: %w", err)
	}
	defer func() { _ = os.RemoveAll(apt) }()
	p, err := newPackages(apt, "amd64", "deb http://deb.debian.org/debian trixie main\n")
	if err != nil {
		return err
	}
	if err := p.update(ctx); err != nil {
		return err
	}
	if err := p.unpack(ctx, dir, seLinuxPackages...); err != nil {
		return err
	}
	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("link a folder: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "var/lib/selinux", seLinuxStore), 0o755); err != nil {
		return fmt.Errorf("make the policy's folder: %w", err)
	}
	semanage, err := os.ReadFile(filepath.Join(dir, "etc/selinux/semanage.conf"))
	if err != nil {
		return fmt.Errorf("read semanage's configuration: %w", err)
	}
	for name, content := range map[string]string{
		"etc/selinux/semanage.conf": string(semanage) + policyVersion, "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
		"rules.cil": rules,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	modules, err := filepath.Glob(filepath.Join(dir, "usr/share/selinux", seLinuxStore, "*.pp.bz2"))
	if err != nil || len(modules) == 0 {
		return errors.Join(errors.New("the package selinux-policy-default has no modules"), err)
	}
	install := []string{dir, "/usr/sbin/semodule", "-n", "-s", seLinuxStore, "-X", "100", "-i/rules.cil"}
	for _, module := range modules {
		install = append(install, "-i"+strings.TrimPrefix(module, dir))
	}
	_, err = command{name: "chroot", args: install}.run(ctx)
	return err
}

// Label labels the files of a tree as restorecon would, and lays the policy where the node's first
// process looks for it.
func (p *SELinux) Label(ctx context.Context, tree string) error {
	content, err := os.ReadFile(p.Policy)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	target := filepath.Join(tree, "etc/selinux/policy")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("make a folder for the policy: %w", err)
	}
	if err := os.WriteFile(target, content, 0o644); err != nil {
		return fmt.Errorf("write the policy: %w", err)
	}
	// The container runtime reads from these what containers' labels are.
	contexts := filepath.Join("etc/selinux", seLinuxStore)
	if err := os.CopyFS(filepath.Join(tree, contexts, "contexts"), os.DirFS(filepath.Join(p.dir, contexts, "contexts"))); err != nil {
		return fmt.Errorf("copy the policy's contexts: %w", err)
	}
	config := []byte("SELINUX=enforcing\nSELINUXTYPE=" + seLinuxStore + "\n")
	if err := os.WriteFile(filepath.Join(tree, "etc/selinux/config"), config, 0o644); err != nil {
		return fmt.Errorf("write SELinux's configuration: %w", err)
	}
	libraries := strings.Join([]string{filepath.Join(p.dir, "usr/lib/x86_64-linux-gnu"), filepath.Join(p.dir, "usr/lib")}, ":")
	args := []string{"--library-path", libraries, filepath.Join(p.dir, "usr/sbin/setfiles"), "-F", "-r", tree,
		filepath.Join(p.dir, "etc/selinux", seLinuxStore, "contexts/files/file_contexts"), tree}
	_, err = command{name: filepath.Join(p.dir, "usr/lib64/ld-linux-x86-64.so.2"), args: args}.run(ctx)
	return err
}
