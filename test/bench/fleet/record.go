// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// recorded is what Drover's components sent for one node, each request once: the floor sends the
// same. The delete of the carrier has no body of its own but the carrier's UID.
type recorded struct {
	carrier, order, report, ready, plugin audit.Request
}

// recording is what was sent in Drover's window.
type recording struct {
	nodes map[string]*recorded
	// daemonSet is the device plugin's.
	daemonSet audit.Request
}

// record sorts the writes of Drover's window. Of requests that were sent more than once for a node,
// the last is taken: the floor does not repeat them.
func record(writes []audit.Request) (*recording, error) {
	r := &recording{nodes: map[string]*recorded{}}
	for _, w := range writes {
		if w.ResponseStatus.Code >= 300 {
			continue
		}
		switch w.Verb + " " + w.Resource() {
		case "create pods":
			node, err := nodeOf(w.Body)
			if err != nil {
				return nil, err
			}
			r.of(node).carrier = w
		case "patch nodemodulesconfigs":
			r.of(w.ObjectRef.Name).order = w
		case "patch nodemodulesconfigs/status":
			r.of(w.ObjectRef.Name).report = w
		case "patch nodes":
			if strings.Contains(string(w.Body), pluginLabel) {
				r.of(w.ObjectRef.Name).plugin = w
			} else {
				r.of(w.ObjectRef.Name).ready = w
			}
		case "patch daemonsets":
			r.daemonSet = w
		}
	}
	return r, r.whole()
}

func (r *recording) of(node string) *recorded {
	if r.nodes[node] == nil {
		r.nodes[node] = &recorded{}
	}
	return r.nodes[node]
}

// whole fails if a request was not seen: a floor without it would be too low.
func (r *recording) whole() error {
	var errs []error
	for node, n := range r.nodes {
		for what, request := range map[string]audit.Request{
			"a carrier": n.carrier, "an order": n.order, "a report": n.report, "the ready label": n.ready, "the plugin's label": n.plugin,
		} {
			if len(request.Body) == 0 {
				errs = append(errs, fmt.Errorf("node %s: the audit log has no request for %s", node, what))
			}
		}
	}
	if len(r.daemonSet.Body) == 0 {
		errs = append(errs, errors.New("the audit log has no request for the device plugin's DaemonSet"))
	}
	return errors.Join(errs...)
}

func nodeOf(pod json.RawMessage) (string, error) {
	var read struct {
		Spec struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(pod, &read); err != nil {
		return "", fmt.Errorf("read a carrier from the audit log: %w", err)
	}
	return read.Spec.NodeName, nil
}
