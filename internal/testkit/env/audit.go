// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// auditPolicy records every request but those for Leases, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
`

// Request is one request as the API server's audit log has it.
type Request struct {
	audit.Request
	// RequestURI is the path with the query.
	RequestURI string `json:"requestURI"`
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

// Mark returns the audit log's end. All requests that were answered before are in front of it.
func (e *Env) Mark(t testing.TB) Mark {
	t.Helper()
	admin, err := kubernetes.NewForConfig(e.AdminConfig())
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	// An answer may reach its client before its line reaches the log. A request of our own, made
	// later, shows when the log has caught up.
	barrier := fmt.Sprintf("/version?barrier=%d", barriers.Add(1))
	begin, err := audit.End(e.audit)
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.RESTClient().Get().RequestURI(barrier).Do(t.Context()).Error(); err != nil {
		t.Fatalf("make a barrier request: %v", err)
	}
	var end Mark
	err = wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		requests, next, err := e.read(Mark(begin))
		end = next
		return slices.ContainsFunc(requests, func(r Request) bool { return r.RequestURI == barrier }), err
	})
	if err != nil {
		t.Fatalf("wait for the audit log: %v", err)
	}
	return end
}

// Requests returns all requests since a mark, oldest first. The zero Mark is the start.
func (e *Env) Requests(t testing.TB, since Mark) []Request {
	t.Helper()
	e.Mark(t)
	requests, _, err := e.read(since)
	if err != nil {
		t.Fatal(err)
	}
	return requests
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

// read parses the log from a byte offset on, and returns the offset after the last whole line.
func (e *Env) read(from Mark) ([]Request, Mark, error) {
	file, err := os.Open(e.audit)
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
