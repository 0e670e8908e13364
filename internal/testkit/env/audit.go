// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// auditPolicy records every request but those for Leases, without bodies. That a request was
// received is in the log before the request has an effect.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: None
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
`

// stageReceived is the stage of a request before it has an effect (audit.k8s.io/v1).
const stageReceived = "RequestReceived"

// Request is one request as the API server's audit log has it.
type Request struct {
	audit.Request
	// RequestURI is the path with the query.
	RequestURI string `json:"requestURI"`
	// ID is the same in all lines about one request.
	ID types.UID `json:"auditID"`
	// Stage is how far the request was when the line was written.
	Stage string `json:"stage"`
}

// IsWrite is true for requests that change, or try to change, an object that is kept: not for dry
// runs, and not for reviews and tokens, which are created but not kept.
func (r Request) IsWrite() bool {
	uri, err := url.Parse(r.RequestURI)
	return err == nil && !uri.Query().Has("dryRun") && !strings.HasSuffix(r.ObjectRef.Resource, "reviews") && r.Request.IsWrite()
}

// Write names a kind of write.
type Write struct {
	// Agent is the user agent up to its first slash.
	Agent string
	// Verb is the API's verb, such as patch.
	Verb string
	// Resource is the plural name with the subresource, as in "nodes/status".
	Resource string
}

// Mark is a point in the audit log.
type Mark int64

var barriers atomic.Int64

// answerTimeout bounds the wait for requests under way. A webhook may take 30 seconds.
const answerTimeout = time.Minute

// Mark returns the audit log's end, once every request of the operator or an agent that had reached
// the API server is answered. What they wrote is in front of it.
func (e *Env) Mark(t testing.TB) Mark {
	t.Helper()
	admin, err := kubernetes.NewForConfig(e.AdminConfig())
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	// An answer may reach its client before its line reaches the log. A request of our own, made
	// later, shows when the log has caught up.
	barrier := fmt.Sprintf("/version?barrier=%d", barriers.Add(1))
	if err := admin.RESTClient().Get().RequestURI(barrier).Do(t.Context()).Error(); err != nil {
		t.Fatalf("make a barrier request: %v", err)
	}
	var end Mark
	var awaited map[types.UID]string
	err = wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, answerTimeout, true, func(context.Context) (bool, error) {
		passed, underWay, next, err := e.log.look(barrier)
		if err != nil || !passed {
			return false, err
		}
		if awaited == nil {
			awaited = underWay
		}
		// Those that came after the barrier are not waited for: in a busy cluster there are always some.
		maps.DeleteFunc(awaited, func(id types.UID, _ string) bool { return underWay[id] == "" })
		end = next
		return len(awaited) == 0, nil
	})
	if err != nil {
		t.Fatalf("wait for the audit log, and for the answers to %v: %v", slices.Collect(maps.Values(awaited)), err)
	}
	return end
}

// Requests returns all requests since a mark, oldest first. The zero Mark is the start.
func (e *Env) Requests(t testing.TB, since Mark) []Request {
	t.Helper()
	e.Mark(t)
	lines, _, err := read(e.log.path, since)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(lines, func(r Request) bool { return r.Stage == stageReceived })
}

// Writes counts the writes since a mark that the operator and the agents made, refused ones
// included. It is empty when they wrote nothing. With names, only writes to objects of these
// namespaces or with these names count: an operator that starts looks at what other tests left.
func (e *Env) Writes(t testing.TB, since Mark, names ...string) map[Write]int {
	t.Helper()
	writes := map[Write]int{}
	for _, r := range e.Requests(t, since) {
		about := len(names) == 0 || slices.Contains(names, r.ObjectRef.Namespace) || slices.Contains(names, r.ObjectRef.Name)
		if about && r.Ours() && r.IsWrite() {
			agent, _, _ := strings.Cut(r.UserAgent, "/")
			writes[Write{Agent: agent, Verb: r.Verb, Resource: r.Resource()}]++
		}
	}
	return writes
}

// AssertNoMasters fails the test when a request with one of our user agents was made by
// system:masters, whom no role restricts. Without any request of ours it fails too: then nothing
// was shown.
func (e *Env) AssertNoMasters(t testing.TB) {
	t.Helper()
	ours := 0
	for _, r := range e.Requests(t, 0) {
		if !r.Ours() {
			continue
		}
		ours++
		if slices.Contains(r.User.Groups, "system:masters") {
			t.Errorf("%s %s by %s was made by system:masters (%s)", r.Verb, r.RequestURI, r.UserAgent, r.User.Username)
		}
	}
	if ours == 0 {
		t.Error("the audit log has no request of the operator or an agent")
	}
}

// auditLog follows the log for what is under way. Tests that run at the same time share it.
type auditLog struct {
	path string

	mu       sync.Mutex
	end      Mark
	barriers map[string]bool
	// underWay has the requests of the operator and the agents that were received and are not
	// answered. A change can be seen before the request that made it is answered, and so counted.
	underWay map[types.UID]string
}

func newAuditLog(path string) *auditLog {
	return &auditLog{path: path, barriers: map[string]bool{}, underWay: map[types.UID]string{}}
}

// look reads on to the log's end. It says whether a barrier is answered, and which requests are
// not.
func (l *auditLog) look(barrier string) (bool, map[types.UID]string, Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, end, err := read(l.path, l.end)
	if err != nil {
		return false, nil, 0, err
	}
	l.end = end
	for _, r := range lines {
		switch {
		case r.Stage != stageReceived:
			delete(l.underWay, r.ID)
			if strings.HasPrefix(r.RequestURI, "/version?barrier=") {
				l.barriers[r.RequestURI] = true
			}
		case r.Ours() && r.Verb != "watch":
			l.underWay[r.ID] = r.Verb + " " + r.RequestURI
		}
	}
	return l.barriers[barrier], maps.Clone(l.underWay), end, nil
}

// read parses the log from a byte offset on, and returns the offset after the last whole line.
func read(path string, from Mark) ([]Request, Mark, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, from, fmt.Errorf("open the audit log: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	if _, err := file.Seek(int64(from), io.SeekStart); err != nil {
		return nil, from, fmt.Errorf("read the audit log: %w", err)
	}
	var requests []Request
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, from, nil
		}
		if err != nil {
			return nil, from, fmt.Errorf("read the audit log: %w", err)
		}
		var request Request
		if err := json.Unmarshal(line, &request); err != nil {
			return nil, from, fmt.Errorf("read the audit log: %w", err)
		}
		requests = append(requests, request)
		from += Mark(len(line))
	}
}
