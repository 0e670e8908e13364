// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// searchPath is firmware_class.path of a kernel in memory.
type searchPath struct{ value string }

func (s *searchPath) FirmwarePath() (string, error) { return s.value, nil }

func (s *searchPath) SetFirmwarePath(value string) error {
	s.value = value
	return nil
}

// stage gives the rig's agent a real stage on a host directory.
func (r *rig) stage() *searchPath {
	r.t.Helper()
	state := filepath.Join(r.dir, "firmware-state")
	for _, dir := range []string{state, filepath.Join(r.dir, "root")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	paths := &searchPath{}
	stage, err := firmware.Open(firmware.Options{HostRoot: filepath.Join(r.dir, "root"), StateDir: state, BootID: "boot", SearchPath: paths,
		Sync: statefile.NoSync})
	if err != nil {
		r.t.Fatal(err)
	}
	r.agent.o.Firmware = stage
	return paths
}

// blob orders a module with one firmware file.
func (r *rig) blob(name, id, content string) v1beta1.NodeModuleSpec {
	d := r.deliver(id, synth.Module{Name: name})
	r.write(d.CarrierUID, map[string][]byte{
		path.Join("lib/modules", release, "extra", name+".ko"): ko(synth.Module{Name: name}),
		"firmware/vendor/blob.bin":                             []byte(content),
	})
	o := order(name, d)
	o.Config.Modprobe.FirmwarePath = "/firmware"
	return o
}

// onHost is what the kernel would find.
func (r *rig) onHost() string {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, "root", firmware.DefaultDir, "vendor/blob.bin"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(content)
}

func TestFirmwareComesBeforeTheModuleAndGoesAfterIt(t *testing.T) {
	r := newRig(t, fake.Options{})
	paths := r.stage()
	o := r.blob("gadget", "d1", "one")
	s := r.pass(o)
	if loadedImage(s, "gadget") == "" || r.onHost() != "one" || paths.value != firmware.DefaultDir {
		t.Errorf("%s; firmware %q, search path %q", attempt(s, "gadget"), r.onHost(), paths.value)
	}
	r.pass(o)
	absent(&o)
	r.pass(o)
	if len(r.host.Live()) > 0 || r.onHost() != "" || paths.value != "" {
		t.Errorf("live %v, firmware %q, search path %q", r.host.Live(), r.onHost(), paths.value)
	}
}

func TestFirmwareThatIsAnothersIsAConflict(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.stage()
	first, second := r.blob("alpha", "d1", "one"), r.blob("beta", "d2", "two")
	s := r.pass(first, second)
	same(t, "attempt", "Failed FirmwareConflict", attempt(s, "beta"))
	for _, a := range s.Attempts {
		if !strings.Contains(a.Message, "ns/alpha") || !strings.Contains(a.Message, "vendor/blob.bin") {
			t.Errorf("message %q", a.Message)
		}
	}
	if r.host.Live()["beta"] != "" || r.onHost() != "one" {
		t.Errorf("live %v, firmware %q", r.host.Live(), r.onHost())
	}
}

// TestFirmwareOfOrdersThatAreGone is removed by the next agent; what is loaded keeps its own.
func TestFirmwareOfOrdersThatAreGone(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.stage()
	r.pass(r.blob("gadget", "d1", "one"))
	r.restart(r.host)
	r.stage()
	r.pass()
	if r.onHost() != "one" {
		t.Error("the firmware of a module that is live and that no order names is gone")
	}
	r.host.Reboot("")
	r.restart(r.host)
	r.stage()
	r.pass()
	if r.onHost() != "" {
		t.Error("firmware that nobody asks for stays")
	}
}

// TestFirmwareOfAFailedLoadIsReleased: it is in nobody's way, and a previous build has its own
// again.
func TestFirmwareOfAFailedLoadIsReleased(t *testing.T) {
	refuse := func(r *rig, name string) { r.host.Script("finit_module", name, fake.Fault{Errno: "ENODEV", Times: 1}) }
	t.Run("for another Module", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		paths := r.stage()
		refuse(r, "alpha")
		failed := r.blob("alpha", "d1", "one")
		same(t, "attempt", "Failed NoSuchDevice", attempt(r.pass(failed), "alpha"))
		if r.onHost() != "" || paths.value != "" {
			t.Errorf("firmware %q and search path %q stay", r.onHost(), paths.value)
		}
		absent(&failed)
		s := r.pass(failed, r.blob("beta", "d2", "two"))
		same(t, "attempt", "", attempt(s, "beta"))
		same(t, "firmware", "two", r.onHost())
	})
	t.Run("for the previous build", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		paths := r.stage()
		first := order("gadget", r.deliver("d0", gadget))
		r.pass(first)
		refuse(r, "gadget")
		s := r.pass(r.blob("gadget", "d1", "one"))
		same(t, "attempt", "Failed RolledBack", attempt(s, "gadget"))
		same(t, "live", first.Config.ContainerImage, loadedImage(s, "gadget"))
		if r.onHost() != "" || paths.value != "" {
			t.Errorf("firmware %q and search path %q stay", r.onHost(), paths.value)
		}
	})
	t.Run("for the previous build's firmware", func(t *testing.T) {
		r := newRig(t, fake.Options{})
		paths := r.stage()
		r.pass(r.blob("gadget", "d0", "old"))
		d := r.deliver("d1", gadgetV2)
		r.write(d.CarrierUID, map[string][]byte{
			path.Join("lib/modules", release, "extra/gadget.ko"): ko(gadgetV2), "firmware/vendor/blob.bin": []byte("new"),
		})
		next := order("gadget", d)
		next.Config.Modprobe.FirmwarePath = "/firmware"
		refuse(r, "gadget")
		same(t, "attempt", "Failed RolledBack", attempt(r.pass(next), "gadget"))
		same(t, "firmware", "old", r.onHost())
		same(t, "search path", firmware.DefaultDir, paths.value)
	})
}
