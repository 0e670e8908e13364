// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// calm is how long an operator may write nothing before it is called quiet: longer than any pause
// between two steps that follow from one event.
const calm = 2 * time.Second

// Write is a request that was to change something, whatever was answered. Leases, token requests
// and reviews do not count.
type Write struct {
	// Verb is the API's, such as "patch".
	Verb string
	// Resource is the plural name with the subresource, such as "modules" or "widgets/status".
	Resource string
	// Namespace and Name of the object.
	Namespace, Name string
	// Code is the HTTP status of the answer.
	Code int
}

// Writes does something and returns what the operator wrote meanwhile and until it was quiet.
func (o *Operator) Writes(t testing.TB, do func()) []Write {
	t.Helper()
	log, err := audit.Open(o.c.fleet.Cluster.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	do()
	var all []Write
	err = wait.PollUntilContextTimeout(t.Context(), calm, o.c.o.Patience, false, func(context.Context) (bool, error) {
		requests, err := log.Next()
		fresh := o.writes(requests)
		all = append(all, fresh...)
		return len(fresh) == 0, err
	})
	if err != nil {
		t.Fatalf("the writes of %s do not end (%v): the last ones are %+v", o.o.Name, err, all[max(len(all)-10, 0):])
	}
	return all
}

// SecondPass waits until the operator is quiet, starts it again, so that it looks at everything
// once more, and returns what it wrote then. A good operator writes nothing.
func (o *Operator) SecondPass(t testing.TB) []Write {
	t.Helper()
	o.Writes(t, func() {})
	return o.Writes(t, func() {
		o.Stop(t)
		o.Start(t)
	})
}

func (o *Operator) writes(requests []audit.Request) []Write {
	user := fmt.Sprintf("system:serviceaccount:%s:%s", o.Namespace(), o.o.Name)
	var all []Write
	for _, r := range requests {
		if r.User.Username != user || !r.IsWrite() || strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
			continue
		}
		all = append(all, Write{
			Verb: r.Verb, Resource: r.Resource(), Namespace: r.ObjectRef.Namespace, Name: r.ObjectRef.Name, Code: r.ResponseStatus.Code,
		})
	}
	return all
}

// logs are the ends of the logs of all that was under test, for who reads about a failure.
func (c *Cluster) logs() string {
	var all strings.Builder
	names := []string{"operator.log"}
	for name := range c.operators {
		names = append(names, name+".log")
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(c.Dir(), name))
		if err != nil {
			continue // it does not run
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		fmt.Fprintf(&all, "--- end of %s\n%s\n", name, strings.Join(lines[max(len(lines)-30, 0):], "\n"))
	}
	return all.String()
}
