// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// chaosServer is the part of an API server that an agent writes to. It has one object at most.
type chaosServer struct {
	node string
	// object is nil when there is none.
	object *v1beta1.NodeModulesConfig
	// Until these times the server does not answer, has no definition of the object, or nobody has
	// made the object again.
	away, undefined, forgotten time.Time
	// down and unknown are the first two, now.
	down, unknown bool
	versions      int
}

// RoundTrip implements http.RoundTripper.
func (s *chaosServer) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case s.down:
		return nil, errors.New("connection refused")
	case r.Method == http.MethodGet:
		return s.answer(http.StatusOK, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{UID: "cluster"}})
	case s.object == nil:
		return s.answer(http.StatusNotFound, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
			Code: http.StatusNotFound,
		})
	}
	var patch struct {
		Status v1beta1.NodeModulesConfigStatus
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	next := s.object.DeepCopy()
	next.Status = patch.Status
	s.put(next)
	return s.answer(http.StatusOK, s.object)
}

func (s *chaosServer) answer(code int, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(data))}, err
}

// put stores an object that nobody else holds.
func (s *chaosServer) put(o *v1beta1.NodeModulesConfig) {
	s.versions++
	o.ResourceVersion = strconv.Itoa(s.versions)
	s.object = o
}

// create makes a new object without an entry.
func (s *chaosServer) create() {
	s.versions++
	s.put(&v1beta1.NodeModulesConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "NodeModulesConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: s.node, UID: uidOf(strconv.Itoa(s.versions))},
	})
}

// deselectGrace is how long the operator lets a selector label be gone.
const deselectGrace = 5 * time.Minute

const deselected = "NodeDeselected"

// operate is the operator, and who runs the cluster: what was down comes back, labels count after a
// while, orders are written. An object that is new gets its entries one by one.
func (c *chaos) operate() {
	s, now := c.server, c.clock.Now()
	s.down, s.unknown = now.Before(s.away), now.Before(s.undefined)
	for name, gone := range c.away {
		o := c.want[name]
		switch {
		case !now.Before(gone.until):
			delete(c.away, name)
			if o != nil && o.Reason == deselected {
				o.State, o.Reason = "", ""
			}
		case o != nil && now.Sub(gone.since) >= deselectGrace:
			o.State, o.Reason = v1beta1.NodeModuleAbsent, deselected
		}
	}
	if s.unknown {
		s.object = nil
	}
	if s.down || s.unknown || s.object == nil && now.Before(s.forgotten) {
		return
	}
	if s.object == nil {
		s.create()
	}
	next := s.object.DeepCopy()
	next.Spec.Modules = slices.DeleteFunc(next.Spec.Modules, func(m v1beta1.NodeModuleSpec) bool { return c.want[m.Name] == nil })
	for _, name := range chaosNames {
		at := slices.IndexFunc(next.Spec.Modules, func(m v1beta1.NodeModuleSpec) bool { return m.Name == name })
		if at >= 0 {
			next.Spec.Modules[at] = *c.want[name].DeepCopy()
		} else if c.want[name] != nil {
			next.Spec.Modules = append(next.Spec.Modules, *c.want[name].DeepCopy())
			break
		}
	}
	s.put(next)
}

// watch shows the agent what its watch would. Of a definition that goes, a running agent sees the
// object go; one that begins meanwhile gets no list, as from a server that does not answer.
func (c *chaos) watch() {
	s, w := c.server, c.agent.latest
	_, listed := w.get()
	switch {
	case s.down, s.unknown && !listed:
	case s.object == nil:
		w.set(nil)
	default:
		w.set([]any{s.object.DeepCopy()})
	}
	object, listed := w.get()
	c.acting = map[string]*v1beta1.NodeModuleSpec{}
	switch {
	case listed && object != nil:
		for i := range object.Spec.Modules {
			c.acting[object.Spec.Modules[i].Name] = &object.Spec.Modules[i]
		}
		c.accepted = c.acting
	case !listed:
		c.acting = c.accepted
	}
}

// truthful checks that what is reported live is so.
func (c *chaos) truthful() {
	s := c.server
	if s.down || s.object == nil || !c.agent.writeAfter.IsZero() {
		return
	}
	for _, m := range s.object.Status.Modules {
		if o := c.acting[m.Name]; o != nil && c.live[m.Name] == c.wanted(o) {
			c.worked[m.Name] = []string{c.live[m.Name]}
		}
		if c.host.Live()[m.Name] == "" {
			c.faults.wrong++
			c.t.Errorf("event %d: %s is reported live and is not", c.counts["events"], m.Name)
		}
	}
}
