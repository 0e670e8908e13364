// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/chaos/judge"
)

// judge reads the journals of all kernels, then the audit log, and fills the result.
func (s *scene) judge(ctx context.Context) error {
	journal, err := s.f.Journal(ctx)
	if err != nil {
		return err
	}
	requests, err := s.log.Next()
	if err != nil {
		return err
	}
	r := &s.result
	r.UnaskedUnloads, r.RanOn = 0, true
	for _, d := range s.directions {
		for _, name := range names {
			if err := s.explain(d, name, journal, requests); err != nil {
				return err
			}
		}
		for n, calls := range journal {
			s.besides(d, n, calls)
		}
		if err := s.labels(d, requests); err != nil {
			return err
		}
	}
	s.writes(requests)
	aside, err := filepath.Glob(filepath.Join(s.f.Dir(), "hollow", "nodes", "*", "state", "journal.json.aside"))
	r.JournalsAside = len(aside)
	if err != nil {
		return fmt.Errorf("find journals that were set aside: %w", err)
	}
	return nil
}

// explain finds for each call about a Module's kernel module the order that asked for it.
func (s *scene) explain(d *direction, name string, journal map[string][]fake.Call, requests []audit.Request) error {
	key, kernelName := d.key(name), d.kernelName(name)
	history := judge.NewHistory(key, func(image, kernel string) string { return hollow.BuildID(image, kernel, kernelName) })
	if err := history.Add(requests); err != nil {
		return err
	}
	for n, calls := range journal {
		is, gaps := history.Node(n)
		is.Calls = calls
		account := judge.Explain(is, kernelName, key.String())
		for _, f := range append(account.Unasked, account.WrongLoads...) {
			s.say("%s: %s", name, f)
		}
		s.result.UnaskedUnloads += len(account.Unasked)
		s.result.WrongLoads += len(account.WrongLoads)
		s.result.HistoryGaps += gaps
	}
	return nil
}

// besides judges the calls about further kernel modules: that of the host leaves once, for the
// Module that replaces it, and what another Module needs leaves with it, where it was loaded for
// it.
func (s *scene) besides(d *direction, node string, calls []fake.Call) {
	replaced, loaded := false, false
	for _, c := range calls {
		if c.Call == "reboot" {
			s.result.RanOn = false
		}
		if c.Result != "" {
			continue
		}
		asked := true
		switch {
		case c.Module == d.kernelName("host") && c.Call == "delete_module":
			asked = !replaced && c.For == d.key(intree).String()
			replaced = true
		case c.Module == d.kernelName("needed") && c.Call == "finit_module":
			loaded = true
		case c.Module == d.kernelName("needed") && c.Call == "delete_module":
			asked = loaded && c.For == d.key(sharing).String() && c.Time.After(d.deleted)
		}
		if !asked {
			s.say("%s: %s of %s for %q, which no order asked for", node, c.Call, c.Module, c.For)
			s.result.UnaskedUnloads++
		}
	}
}

// labels counts how often a node lost the ready label of a Module that stayed loaded.
func (s *scene) labels(d *direction, requests []audit.Request) error {
	had := map[string]bool{}
	for _, r := range requests {
		if r.ObjectRef.Resource != "nodes" || !r.IsWrite() || r.ResponseStatus.Code/100 != 2 || len(r.Object) == 0 {
			continue
		}
		var n corev1.Node
		if err := json.Unmarshal(r.Object, &n); err != nil {
			return fmt.Errorf("read a node of the audit log: %w", err)
		}
		for _, name := range steady {
			_, has := n.Labels[v1beta1.ReadyLabel(d.namespace, name)]
			what := n.Name + " " + name
			if had[what] && !has && (d.deleted.IsZero() || r.Received.Before(d.deleted)) {
				s.say("%s lost the ready label of %s by %s at %s", n.Name, name, r.UserAgent, r.Received.Format(metav1.RFC3339Micro))
				s.result.LabelsLost++
			}
			had[what] = has
		}
	}
	return nil
}

// writes counts those of each version, and what was refused.
func (s *scene) writes(requests []audit.Request) {
	s.result.Writes = map[string]int{}
	writes := audit.OurWrites(requests)
	accepted := map[string]time.Time{}
	for _, r := range writes {
		if r.ResponseStatus.Code/100 == 2 {
			accepted[write(r)] = r.Received
		}
	}
	for _, r := range writes {
		program, _, _ := strings.Cut(r.UserAgent, " ")
		s.result.Writes[program]++
		code := r.ResponseStatus.Code
		early := strings.Contains(r.ResponseStatus.Message, unknownParams) && accepted[write(r)].After(r.Received)
		if code/100 == 4 && code != 404 && code != 409 && !early && !outdated(r) {
			s.say("refused with %d: %s of %s %s by %s: %s", code, r.Verb, r.Resource(), r.ObjectRef.Name, r.UserAgent, r.ResponseStatus.Message)
			s.result.Refused++
		}
	}
}

// unknownParams is what the API server says to a write about a Module that its policies do not know
// yet: they learn of new Modules by a watch, late where the machine is busy. Such a write is
// refused only if no later one is accepted.
const unknownParams = "no params found for policy binding"

// write names what a request writes, and who does.
func write(r audit.Request) string {
	return strings.Join([]string{r.UserAgent, r.Verb, r.Resource(), r.ObjectRef.Namespace, r.ObjectRef.Name}, " ")
}

// outdated says whether a JSON patch was refused because what it tests has changed meanwhile: the
// API server has no code of its own for that.
func outdated(r audit.Request) bool {
	return r.ResponseStatus.Code == 422 && r.ResponseStatus.Message == "the server rejected our request due to an error in our request" &&
		strings.Contains(string(r.Body), `"/metadata/resourceVersion"`)
}
