// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/internal/process"
)

//go:embed namespaces.sh
var namespaces string

const (
	controlGroups = "/sys/fs/cgroup"
	// endTimeout bounds the end of processes that were killed.
	endTimeout = 20 * time.Second
)

// Native is a node on the machine's own processors and kernel, in namespaces of its own: it is for
// work that an emulated processor takes too long for, such as builds, and for none that touches a
// kernel. It reaches the API server, the registry and peers that are named, and nothing else.
type Native struct {
	config    Config
	root      string
	group     string
	child     *process.Child
	listeners []net.Listener
}

// StartNative starts a node and returns at once; WaitReady waits. It ends with Stop, or with this
// process. Of the configuration, what is about a machine does not count.
func StartNative(ctx context.Context, cache *artifacts.Cache, config Config) (_ *Native, err error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	config.native = true
	if config.KubeletPort, err = freePort(); err != nil {
		return nil, err
	}
	n := &Native{config: config, root: filepath.Join(config.Dir, "root"), group: fmt.Sprintf("drover-%s-%d", config.Name, os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop())
		}
	}()
	if err := cache.RootFolder(ctx, n.root); err != nil {
		return nil, err
	}
	if err := n.write(); err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Server)
	if err != nil {
		return nil, fmt.Errorf("read the API server's URL: %w", err)
	}
	sockets := map[string]string{"api": server.Port(), "registry": strconv.Itoa(config.RegistryPort)}
	for _, port := range config.Peers {
		sockets[fmt.Sprintf("peer-%d", port)] = strconv.Itoa(port)
	}
	for name, port := range sockets {
		if err := n.forward(filepath.Join(n.root, "mnt", name), net.JoinHostPort("127.0.0.1", port)); err != nil {
			return nil, err
		}
	}
	if err := n.makeGroups(); err != nil {
		return nil, err
	}
	return n, n.start()
}

// write lays the node's configuration over its root.
func (n *Native) write() error {
	files, err := n.config.guestFiles()
	if err != nil {
		return err
	}
	for name, file := range files {
		path := filepath.Join(n.root, strings.TrimPrefix(name, "overlay/"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make a folder of the node: %w", err)
		}
		mode := fs.FileMode(0o644)
		if file.Mode != 0 {
			mode = fs.FileMode(file.Mode)
		}
		if err := os.WriteFile(path, file.Content, mode); err != nil {
			return fmt.Errorf("write a file of the node: %w", err)
		}
	}
	// Where root may not make itself less likely to be ended for want of memory, its containers cannot
	// either.
	runtime := filepath.Join(n.root, "etc/containerd/config.toml")
	content, err := os.ReadFile(runtime)
	if err != nil {
		return fmt.Errorf("read the runtime's configuration: %w", err)
	}
	content = bytes.Replace(content, []byte("enable_selinux = false"), []byte("enable_selinux = false\n  restrict_oom_score_adj = true"), 1)
	if err := os.WriteFile(runtime, content, 0o644); err != nil {
		return fmt.Errorf("write the runtime's configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(n.root, "mnt", "host"), 0o755); err != nil {
		return fmt.Errorf("make a folder of the node: %w", err)
	}
	return nil
}

func (n *Native) start() error {
	log, err := os.Create(filepath.Join(n.config.Dir, "init.log"))
	if err != nil {
		return fmt.Errorf("create the node's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	script := []string{"--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "/bin/sh", "-c", namespaces, "namespaces",
		n.root, n.group}
	cmd := exec.Command("unshare", script...)
	cmd.Stdout, cmd.Stderr = log, log
	n.child, err = process.Start(cmd)
	return err
}

// forward has a socket in the node lead to an address of this machine.
func (n *Native) forward(socket, address string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for the node: %w", err)
	}
	n.listeners = append(n.listeners, listener)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			go relay(client, address)
		}
	}()
	return nil
}

// relay copies both ways until both sides are done. A failure shows to both as a closed connection.
func relay(client net.Conn, address string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		closeWrite(server)
	}()
	_, _ = io.Copy(client, server)
	closeWrite(client)
	<-done
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// hierarchies are the folders of control groups: one, or that of each controller.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(controlGroups, "cgroup.controllers")); err == nil {
		return []string{controlGroups}
	}
	var all []string
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids"} {
		all = append(all, filepath.Join(controlGroups, controller))
	}
	return all
}

// shares of the processors where others want them as well, by hierarchy: an eighth of what one
// process has that is in no group. A build has time; a virtual node beside it has a lease to renew.
var shares = map[string][2]string{"cpu": {"cpu.shares", "128"}, filepath.Base(controlGroups): {"cpu.weight", "12"}}

func (n *Native) makeGroups() error {
	for _, hierarchy := range hierarchies() {
		group := filepath.Join(hierarchy, n.group)
		if err := os.Mkdir(group, 0o755); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
		if share := shares[filepath.Base(hierarchy)]; share != [2]string{} {
			if err := os.WriteFile(filepath.Join(group, share[0]), []byte(share[1]), 0o644); err != nil {
				return fmt.Errorf("give a control group its share of the processors: %w", err)
			}
		}
		if filepath.Base(hierarchy) != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // a new group has none
			content, err := os.ReadFile(filepath.Join(hierarchy, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(group, file), content, 0o644)
			}
			if err != nil {
				return fmt.Errorf("give processors to a control group: %w", err)
			}
		}
	}
	return nil
}

// removeGroups removes the node's control groups as soon as nothing runs there any more.
func (n *Native) removeGroups() error {
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), pollInterval, endTimeout, true, func(context.Context) (bool, error) {
		last = n.removeEmptyGroups()
		return last == nil, nil
	})
	if err != nil {
		return last
	}
	return nil
}

// removeEmptyGroups removes them, the inner ones first.
func (n *Native) removeEmptyGroups() error {
	var errs []error
	for _, hierarchy := range hierarchies() {
		var folders []string
		err := filepath.WalkDir(filepath.Join(hierarchy, n.group), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("find control groups: %w", err))
		}
		for i := len(folders) - 1; i >= 0; i-- {
			if err := os.Remove(folders[i]); err != nil {
				errs = append(errs, fmt.Errorf("remove a control group: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// WaitReady waits until the API server has the node Ready.
func (n *Native) WaitReady(ctx context.Context, client kubernetes.Interface) error {
	if _, err := waitReady(ctx, client, n.config.Name, n.child.Done(), func(*corev1.Node) bool { return true }); err != nil {
		return errors.Join(err, n.lastWords())
	}
	return nil
}

func (n *Native) lastWords() error {
	var said []error
	for _, file := range []string{filepath.Join(n.config.Dir, "init.log"), filepath.Join(n.root, "var/log/containerd.log"),
		filepath.Join(n.root, "var/log/kubelet.log")} {
		content, _ := os.ReadFile(file)
		said = append(said, fmt.Errorf("%s: …%s", file, content[max(0, len(content)-4000):]))
	}
	return errors.Join(said...)
}

// Stop ends all that runs on the node. With its first process, the kernel ends all the others and
// lets go of what they mounted.
func (n *Native) Stop() error {
	var errs []error
	if n.child != nil {
		errs = append(errs, n.child.Kill())
	}
	for _, listener := range n.listeners {
		errs = append(errs, listener.Close())
	}
	return errors.Join(append(errs, n.removeGroups())...)
}
