// SPDX-License-Identifier: Apache-2.0

package memapi

import (
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// restamped replaces the time of day, which is all that a kube-apiserver knows, in the metadata of
// what is written to etcd. Answers are read from what was written.
type restamped struct {
	runtime.Codec
	now func() time.Time
}

// real are times of day: no clock of [Options] shows them.
var real = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

func (r restamped) Encode(object runtime.Object, w io.Writer) error {
	if m, err := meta.Accessor(object); err == nil {
		r.stamp(m)
	}
	return r.Codec.Encode(object, w)
}

func (r restamped) stamp(m metav1.Object) {
	now := metav1.NewTime(r.now().Truncate(time.Second))
	if t := m.GetCreationTimestamp(); t.After(real) {
		m.SetCreationTimestamp(now)
	}
	if t := m.GetDeletionTimestamp(); t != nil && t.After(real) {
		at := now
		if grace := m.GetDeletionGracePeriodSeconds(); grace != nil {
			at = metav1.NewTime(now.Add(time.Duration(*grace) * time.Second))
		}
		m.SetDeletionTimestamp(&at)
	}
	fields := m.GetManagedFields()
	for i := range fields {
		if t := fields[i].Time; t != nil && t.After(real) {
			fields[i].Time = &now
		}
	}
	if len(fields) > 0 {
		m.SetManagedFields(fields)
	}
}
