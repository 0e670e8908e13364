// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/report"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const release = "6.1.0-1-test"

// rig is one node: a fake kernel, a real store, and an agent whose API server is away, so that the
// test sees each status instead.
type rig struct {
	t     *testing.T
	dir   string
	node  string
	api   *rest.Config
	host  *fake.Host
	clock *clocktesting.FakeClock
	agent *Agent

	// last is the status as it stands on the API server; writes counts how often it was written.
	last   *v1beta1.NodeModulesConfigStatus
	writes int
}

func newRig(t *testing.T, o fake.Options) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), node: "node-1", api: &rest.Config{Host: "127.0.0.1:1"},
		clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), last: &v1beta1.NodeModulesConfigStatus{}}
	o.Release, o.Clock = release, r.clock
	r.host = fake.New(o)
	if err := os.MkdirAll(filepath.Join(r.dir, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.restart(r.host)
	return r
}

// restart starts a new agent on the same node.
func (r *rig) restart(h host.Host) {
	r.t.Helper()
	st, err := store.New(r.t.Context(), filepath.Join(r.dir, "store"), store.Options{
		PodsDir: filepath.Join(r.dir, "pods"), Sync: statefile.NoSync})
	if err != nil {
		r.t.Fatal(err)
	}
	r.agent, err = New(Options{
		NodeName: r.node, StateDir: filepath.Join(r.dir, "state"), Config: r.api,
		Parts: execute.Parts{Host: h, Store: st, Clock: r.clock}, Sync: statefile.NoSync,
	})
	r.agent.o.Modprobe, _ = h.(execute.Modprobe)
	if err != nil {
		r.t.Fatal(err)
	}
}

// loseJournal empties the agent's journal.
func (r *rig) loseJournal() {
	j := r.agent.memory.Journal
	j.BootID, j.Loaded, j.Replaced, j.Refused, j.RolledBack, j.Worked, j.Deliveries = "", map[orders.Key]*journal.Load{}, nil, nil, nil, nil,
		nil
}

// pass is one round of the agent with these orders.
func (r *rig) pass(specs ...v1beta1.NodeModuleSpec) *v1beta1.NodeModulesConfigStatus {
	r.t.Helper()
	_, ctx := ktesting.NewTestContext(r.t)
	p, err := r.agent.newPass(v1beta1.NodeModulesConfigSpec{Modules: specs})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.exec.Restore(r.last); err != nil {
		r.t.Fatal(err)
	}
	out, err := p.settle(ctx)
	if out == nil {
		r.t.Fatal(err)
	}
	e := p.exec
	next := report.Status(e.BootID, out, e.Journal.Needed(e.Orders, e.Held), r.last, r.clock.Now())
	if report.NeedsWrite(r.last, next, func(k orders.Key) bool { return e.Orders[k] != nil }, e.Held, r.clock.Now()) {
		r.last, r.writes = next, r.writes+1
	}
	return r.last
}

// deliver puts a carrier's output where the kubelet keeps it and returns the delivery.
func (r *rig) deliver(id string, modules ...synth.Module) *v1beta1.Delivery {
	r.t.Helper()
	files := map[string][]byte{}
	for _, m := range modules {
		if m.Vermagic == "" {
			m.Vermagic = release + " SMP mod_unload"
		}
		files[path.Join("lib/modules", release, "extra", m.Name+".ko")] = m.Bytes()
	}
	d := &v1beta1.Delivery{ID: id, CarrierUID: uidOf(id)}
	r.write(d.CarrierUID, files)
	return d
}

// uidOf makes a UUID of a name.
func uidOf(name string) types.UID {
	h := sha256.Sum256([]byte(name))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

func (r *rig) write(uid types.UID, files map[string][]byte) {
	r.t.Helper()
	m := manifest.Manifest{Schema: manifest.Schema, Kernel: release}
	for name, content := range files {
		sum := sha256.Sum256(content)
		m.Files = append(m.Files, manifest.Entry{Path: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
		r.output(uid, path.Join(manifest.TreeDir, name), content)
	}
	slices.SortFunc(m.Files, func(a, b manifest.Entry) int {
		if a.Path < b.Path {
			return -1
		}
		return 1
	})
	data, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.output(uid, manifest.File, data)
}

// output is a file of what a carrier has put out.
func (r *rig) output(uid types.UID, name string, content []byte) {
	r.t.Helper()
	dir, err := store.OutputDir(uid)
	if err != nil {
		r.t.Fatal(err)
	}
	r.file(filepath.Join(r.dir, "pods", dir, name), content)
}

func (r *rig) file(name string, content []byte) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// order asks for a module; change adjusts it.
func order(name string, d *v1beta1.Delivery, change ...func(*v1beta1.NodeModuleSpec)) v1beta1.NodeModuleSpec {
	s := v1beta1.NodeModuleSpec{
		ModuleItem: v1beta1.ModuleItem{Namespace: "ns", Name: name, ServiceAccountName: "default"},
		Config: v1beta1.ModuleConfig{
			KernelVersion: release, ContainerImage: "registry.example/" + name + ":1", ImagePullPolicy: corev1.PullIfNotPresent,
			Modprobe: v1beta1.ModprobeSpec{ModuleName: name, DirName: "/opt"},
		},
		Delivery: d,
	}
	if d != nil {
		s.Config.ContainerImage += d.ID
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func absent(s *v1beta1.NodeModuleSpec) {
	s.State, s.Reason = v1beta1.NodeModuleAbsent, "ModuleDeleted"
}

func params(p ...string) func(*v1beta1.NodeModuleSpec) {
	return func(s *v1beta1.NodeModuleSpec) { s.Config.Modprobe.Parameters = p }
}

// calls are the kernel calls so far, each as "call module result".
func (r *rig) calls() []string {
	var out []string
	for _, c := range r.host.Calls() {
		s := c.Call + " " + c.Module
		if c.Result != "" {
			s += " " + c.Result
		}
		out = append(out, s)
	}
	return out
}

// attempt says state and reason of an order's attempt, or "" when there is none.
func attempt(s *v1beta1.NodeModulesConfigStatus, name string) string {
	for _, a := range s.Attempts {
		if a.Name == name {
			return string(a.State) + " " + a.Reason
		}
	}
	return ""
}

// loadedConfig is the image of the live module of an order, or "" when it is not reported live.
func loadedImage(s *v1beta1.NodeModulesConfigStatus, name string) string {
	for _, m := range s.Modules {
		if m.Name == name {
			return m.Config.ContainerImage
		}
	}
	return ""
}

func hostTreeOf(modules ...synth.Module) fstest.MapFS {
	tree := fstest.MapFS{}
	for _, m := range modules {
		m.Vermagic, m.InTree = release+" SMP mod_unload", true
		tree["kernel/drivers/"+m.Name+".ko"] = &fstest.MapFile{Data: m.Bytes(), Mode: 0o644}
	}
	return tree
}

// ko is the file of a module for the test's kernel.
func ko(m synth.Module) []byte {
	m.Vermagic = release + " SMP mod_unload"
	return m.Bytes()
}

func buildID(t *testing.T, m synth.Module) string {
	t.Helper()
	info, err := kmod.Read(ko(m))
	if err != nil {
		t.Fatal(err)
	}
	return info.BuildID
}

// dyingHost ends the agent in the middle of a load: the call is made, and nobody is there to hear
// its answer.
type dyingHost struct {
	host.Host
	dieAt string
}

func (d dyingHost) Load(ctx context.Context, req host.LoadRequest) error {
	err := d.Host.Load(ctx, req)
	if req.Name == d.dieAt {
		panic("killed")
	}
	return err
}
