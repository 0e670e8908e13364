// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	recordFile   = "record.json"
	recordSchema = 2
)

// record is the last spec the agent accepted: what it works from while the API server cannot be reached.
type record struct {
	ClusterUID types.UID                     `json:"clusterUID"`
	NodeName   string                        `json:"nodeName"`
	Spec       v1beta1.NodeModulesConfigSpec `json:"spec"`
}

// readRecord returns nil when there is no record. One that is damaged, or of another schema or node, is moved aside and is an
// *statefile.UntrustedError: nothing may be loaded from it.
func readRecord(dir, nodeName string) (*record, error) {
	r := &record{}
	err := statefile.Read(dir, recordFile, recordSchema, r)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case r.NodeName != nodeName:
		return nil, statefile.SetAside(dir, recordFile, fmt.Errorf("it is of node %q", r.NodeName))
	case r.ClusterUID == "":
		return nil, statefile.SetAside(dir, recordFile, errors.New("it names no cluster"))
	}
	return r, nil
}

// of says whose record it is not, moving it aside: that it is of another cluster shows only when that is known.
func (r *record) of(dir string, cluster types.UID) error {
	if r == nil || r.ClusterUID == cluster {
		return nil
	}
	return statefile.SetAside(dir, recordFile, fmt.Errorf("it is of the cluster %s, and this is %s", r.ClusterUID, cluster))
}

// forBoot are the orders that a boot without an API server works from: to load, for the running kernel, from what is held. To unload, or to
// look for a delivery, is left to the agent that can ask whether it is still wanted.
func (r *record) forBoot(release string) v1beta1.NodeModulesConfigSpec {
	var spec v1beta1.NodeModulesConfigSpec
	for _, m := range r.Spec.Modules {
		if m.State == v1beta1.NodeModuleAbsent || m.Paused || !sameKernel(m.Config.KernelVersion, release) {
			continue
		}
		if m.Delivery != nil {
			m.Delivery = &v1beta1.Delivery{ID: m.Delivery.ID}
		}
		if m.Next != nil {
			m.Next = &v1beta1.Delivery{ID: m.Next.ID}
		}
		spec.Modules = append(spec.Modules, m)
	}
	return spec
}

// recorder writes the record when it changed.
type recorder struct {
	dir     string
	durable bool
	last    []byte
}

func (w *recorder) write(r record) error {
	data, err := statefile.Encode(recordSchema, r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if bytes.Equal(data, w.last) {
		return nil
	}
	if err := statefile.Replace(w.dir, recordFile, data, 0o600, w.durable); err != nil {
		return err
	}
	w.last = data
	return nil
}
