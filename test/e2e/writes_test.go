// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// calm is how long nothing of ours may be written before all is called quiet: longer than any pause
// between two steps of ours that follow from one event.
const calm = 2 * time.Second

var errWritten = errors.New("something was written")

// requests begins to read the audit log; the function returns what was asked since its last call.
func (s *scenario) requests() func() []audit.Request {
	s.Helper()
	log, err := audit.Open(shared.Cluster.AuditLog)
	s.must(err)
	return func() []audit.Request {
		s.Helper()
		requests, err := log.Next()
		s.must(err)
		return requests
	}
}

// creates counts what the operator created in a namespace.
func creates(requests []audit.Request, namespace, resource string) int {
	n := 0
	for _, r := range audit.OurWrites(requests) {
		if r.Verb == "create" && r.ObjectRef.Namespace == namespace && r.Resource() == resource {
			n++
		}
	}
	return n
}

// quiet waits until nothing of ours is written any more.
func (s *scenario) quiet() {
	s.Helper()
	next := s.requests()
	err := wait.PollUntilContextTimeout(s.Context(), calm, patience, false, func(context.Context) (bool, error) {
		return len(audit.OurWrites(next())) == 0, nil
	})
	if err != nil {
		s.Fatalf("our writes do not end: %v", err)
	}
}

// stillQuiet does something that nothing of ours may answer with a write.
func (s *scenario) stillQuiet(what string, do func()) {
	s.Helper()
	next := s.requests()
	do()
	var written []audit.Request
	err := wait.PollUntilContextTimeout(s.Context(), pace, calm, false, func(context.Context) (bool, error) {
		if written = audit.OurWrites(next()); len(written) > 0 {
			return false, errWritten
		}
		return false, nil
	})
	if errors.Is(err, errWritten) {
		s.Errorf("after %s nothing was to be written, and this was: %+v", what, written)
	}
}

func TestSecondPassWritesNothing(t *testing.T) {
	s := given(t, "noop")
	s.create()
	s.converged(each(everyNode, once))
	s.quiet()
	s.stillQuiet("an annotation of the Module", func() {
		s.change(func(m *v1beta1.Module) { m.Annotations = map[string]string{"e2e.drover.dev/touched": "yes"} })
	})
	s.stillQuiet("a label of the Module", func() {
		s.change(func(m *v1beta1.Module) { m.Labels = map[string]string{"e2e.drover.dev/touched": "yes"} })
	})
	s.stillQuiet("a label of a node", func() { s.label("hollow-0", `"yes"`) })
	s.stillQuiet("a kill of the operator and its next start", func() {
		s.killOperator()
		s.startOperator()
		s.must(shared.WaitOperator(s.Context()))
	})
	s.label("hollow-0", "null")
	s.converged(each(everyNode, once))
}

// TestNothingIsAskedAsAdministrator looks at everything since the fleet began.
func TestNothingIsAskedAsAdministrator(t *testing.T) {
	s := given(t, "roles")
	s.create()
	s.converged(each(everyNode, once))
	requests, err := audit.Whole(shared.Cluster.AuditLog).Next()
	s.must(err)
	askers := map[string]int{}
	// An API server that has just started forbids everything until it has read the roles. What a role
	// lacks is never granted, though.
	granted, forbidden := map[string]bool{}, map[string]bool{}
	for _, r := range requests {
		if !r.Ours() {
			continue
		}
		askers[r.User.Username]++
		if slices.Contains(r.User.Groups, "system:masters") {
			t.Errorf("%s asked as %s: %s %s", r.UserAgent, r.User.Username, r.Verb, r.Resource())
		}
		what := fmt.Sprintf("%s may not %s %s", r.User.Username, r.Verb, r.Resource())
		if r.ResponseStatus.Code == http.StatusForbidden {
			forbidden[what] = true
		} else {
			granted[what] = true
		}
	}
	for what := range forbidden {
		if !granted[what] {
			t.Error(what)
		}
	}
	for _, account := range []string{"drover-operator", "drover-agent"} {
		name := fmt.Sprintf("system:serviceaccount:%s:%s", "drover-system", account)
		if askers[name] == 0 {
			t.Errorf("nothing was asked as %s; there were %v", name, askers)
		}
		delete(askers, name)
	}
	if len(askers) > 0 {
		t.Errorf("asked under other names: %v", askers)
	}
}
