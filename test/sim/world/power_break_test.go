// SPDX-License-Identifier: Apache-2.0

package world

import (
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// powerBreaks are of the promises about power cuts, clocks and calls that hang.
var powerBreaks = map[string]func(*doctor) []string{
	"files-outlive-cut": func(d *doctor) []string {
		return d.cut(func(m *machine) { must(os.WriteFile(filepath.Join(m.dir, "state", "journal.json.aside"), nil, 0o600)) })
	},
	"held-outlives-cut": func(d *doctor) []string {
		return d.cut(func(m *machine) { must(os.RemoveAll(filepath.Join(m.dir, "store", "sha256"))) })
	},
	"worked-outlives-cut": func(d *doctor) []string {
		return d.cut(func(m *machine) {
			j, err := journal.Read(filepath.Join(m.dir, "state"), m.name, statefile.NoSync)
			must(err)
			j.Worked = nil
			must(j.Write())
		})
	},
	"record-outlives-cut": func(d *doctor) []string {
		return d.cut(func(m *machine) { must(os.Remove(filepath.Join(m.dir, "state", "record.json"))) })
	},
	"comes-back": func(d *doctor) []string { return d.cut(func(m *machine) { must(m.kernel.Rmmod(nic.name)) }) },
	"whole-loads": func(d *doctor) []string {
		d.nodes[0].broken = "half of it"
		return d.called(same, "finit_module", nic.name, nic.image(0))
	},
	"hung-is-left": func(d *doctor) []string {
		d.judge.kernelOf("n0").Hung[nic.name] = fake.Call{}
		return d.called(same, "delete_module", nic.name, nic.image(0))
	},
	"waits-end": func(d *doctor) []string {
		return d.attempt(v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed, Message: "x",
			NextRetry: &metav1.Time{Time: d.Now().Add(25 * time.Hour)}})
	},
}
