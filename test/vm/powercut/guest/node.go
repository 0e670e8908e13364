// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // a GNU build ID is a SHA-1 by format; nothing is protected by it
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/test/vm/powercut/say"
)

const (
	podsDir     = "/pods"
	firmwareDir = disk + "/firmware"
	// firmwareSize is several blocks, so that a file can be there in part.
	firmwareSize = 40 << 10
)

// node is this machine as the agent's node.
type node struct {
	say.Options
	host   *host.Real
	module []byte
	info   *kmod.Info
	parts  agent.Options
	store  *store.Store
	fuse   *fuse.Fuse
}

func newNode(o say.Options) (*node, error) {
	n := &node{Options: o}
	var err error
	if n.host, err = host.New(host.Options{Root: "/", Command: []string{"/proc/self/exe", "kcall"}, Deadline: 4 * time.Minute}); err != nil {
		return nil, err
	}
	if n.module, err = os.ReadFile("/module.ko"); err != nil {
		return nil, err
	}
	if n.info, err = kmod.Read(n.module); err != nil {
		return nil, err
	}
	return n, os.MkdirAll(podsDir, 0o755)
}

// open makes the agent's parts, as cmd/drover-agent does.
func (n *node) open(ctx context.Context) error {
	boot, err := n.host.BootID()
	if err != nil {
		return err
	}
	state := func(name string) string { return filepath.Join(disk, "drover", name) }
	for _, name := range []string{"firmware", "fuse"} {
		if err := statefile.MakeDir(state(name)); err != nil {
			return err
		}
	}
	stage, err := firmware.Open(firmware.Options{Dir: firmwareDir, HostRoot: "/", StateDir: state("firmware"), BootID: boot,
		SearchPath: n.host})
	if err != nil {
		return err
	}
	if n.store, err = store.New(ctx, state("store"), store.Options{PodsDir: podsDir}); err != nil {
		return err
	}
	if n.fuse, err = fuse.Open(state("fuse"), nil); err != nil {
		return err
	}
	n.parts = agent.Options{
		NodeName: nodeName, StateDir: state("agent"), Sync: n.sync(),
		Parts:        execute.Parts{Host: n.host, Store: n.store, Firmware: stage, Fuse: n.fuse},
		DeliveryPoll: 20 * time.Millisecond,
	}
	return nil
}

// sync is fsync, unless a cut is to show that it is needed.
func (n *node) sync() statefile.Sync {
	if n.NoSync {
		return statefile.NoSync
	}
	return nil
}

// buildID of an order's build: each order has one of its own.
func buildID(order int) []byte {
	sum := sha1.Sum([]byte(strconv.Itoa(order))) //nolint:gosec // see above
	return sum[:]
}

func (n *node) fuseBuild(order int) fuse.Build {
	return fuse.Build{Module: n.info.Name, BuildID: hex.EncodeToString(buildID(order))}
}

// build is the module's file with another build ID: to the kernel and to the agent, another build.
func (n *node) build(order int) ([]byte, error) {
	was, err := hex.DecodeString(n.info.BuildID)
	if err != nil || len(was) != sha1.Size || bytes.Count(n.module, was) != 1 {
		return nil, fmt.Errorf("the module's build ID %q cannot be replaced", n.info.BuildID)
	}
	return bytes.Replace(n.module, was, buildID(order), 1), nil
}

// live is the order whose build is in the kernel; 0: none, -1: a build of no order from least to
// most.
func (n *node) live(least, most int) (int, error) {
	m, ok, err := n.host.Module(n.info.Name)
	if err != nil || !ok || m.State != host.StateLive {
		return 0, err
	}
	for order := least; order <= most; order++ {
		if m.BuildID == hex.EncodeToString(buildID(order)) {
			return order, nil
		}
	}
	return -1, nil
}

func uidOf(order int) types.UID {
	h := sha256.Sum256([]byte(strconv.Itoa(order)))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

func deliveryID(order int) string { return "d" + strconv.Itoa(order) }

// orderOf is the order of a delivery; 0: of none.
func orderOf(delivery string) int {
	order, err := strconv.Atoi(strings.TrimPrefix(delivery, "d"))
	if err != nil {
		return 0
	}
	return order
}

// deliver puts a carrier's output where the kubelet keeps it.
func (n *node) deliver(order int) error {
	module, err := n.build(order)
	if err != nil {
		return err
	}
	rel, err := store.OutputDir(uidOf(order))
	if err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join("lib/modules", n.host.Release(), "extra", n.info.Name+".ko"): module,
		"firmware/powercut.bin": bytes.Repeat(buildID(order), firmwareSize/sha1.Size),
	}
	m := manifest.Manifest{Schema: manifest.Schema, Kernel: n.host.Release()}
	for name, content := range files {
		sum := sha256.Sum256(content)
		m.Files = append(m.Files, manifest.Entry{Path: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
		if err := put(filepath.Join(podsDir, rel, manifest.TreeDir, name), content); err != nil {
			return err
		}
	}
	slices.SortFunc(m.Files, func(a, b manifest.Entry) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return put(filepath.Join(podsDir, rel, manifest.File), data)
}

func put(name string, content []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644))
}

// order asks for an order's build.
func (n *node) order(order int) v1beta1.NodeModuleSpec {
	return v1beta1.NodeModuleSpec{
		ModuleItem: v1beta1.ModuleItem{Namespace: "powercut", Name: "sample", ServiceAccountName: "default"},
		Config: v1beta1.ModuleConfig{
			KernelVersion: n.host.Release(), ContainerImage: fmt.Sprintf("registry.test/sample:%d", order), ImagePullPolicy: "IfNotPresent",
			Modprobe: v1beta1.ModprobeSpec{ModuleName: n.info.Name, DirName: "/opt", FirmwarePath: "/firmware"},
		},
		Delivery: &v1beta1.Delivery{ID: deliveryID(order), CarrierUID: uidOf(order)},
	}
}
