// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	recordFile   = "record.json"
	recordSchema = 1
)

// record is the last spec the agent accepted: what it works from while the API server cannot be reached.
type record struct {
	Schema     int                           `json:"schema"`
	ClusterUID types.UID                     `json:"clusterUID,omitempty"`
	NodeName   string                        `json:"nodeName"`
	Spec       v1beta1.NodeModulesConfigSpec `json:"spec"`
}

// errRecordForeign says that the record belongs to another cluster or node; it has been moved aside.
var errRecordForeign = errors.New("the record on disk belongs to another cluster or node and was moved aside")

// readRecord returns nil when there is no record. One of another node, cluster (when clusterUID is known) or schema, or
// a damaged one, is moved aside and reported as errRecordForeign: nothing may be loaded from it.
func readRecord(dir, nodeName string, clusterUID types.UID) (*record, error) {
	name := filepath.Join(dir, recordFile)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(data, r); err == nil && r.fits(nodeName, clusterUID) {
		return r, nil
	}
	if err := setAside(name, "foreign"); err != nil {
		return nil, err
	}
	return nil, errRecordForeign
}

func (r *record) fits(nodeName string, clusterUID types.UID) bool {
	return r.Schema == recordSchema && r.NodeName == nodeName &&
		(clusterUID == "" || r.ClusterUID == "" || r.ClusterUID == clusterUID)
}

// recorder writes the record when it changed.
type recorder struct {
	dir     string
	durable bool
	last    []byte
}

func (w *recorder) write(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if bytes.Equal(data, w.last) {
		return nil
	}
	if err := replaceFile(filepath.Join(w.dir, recordFile), data, w.durable); err != nil {
		return err
	}
	w.last = data
	return nil
}
