// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// Recording is what Drover sent in a window, by node and stage.
type Recording struct {
	protocol *Protocol
	nodes    map[string]map[string]audit.Request
	// daemonSet is the device plugin's.
	daemonSet audit.Request
}

// Record sorts the writes of a window by the protocol. Of requests that were sent more than once
// for a node, the last is taken: the floor does not repeat them. It fails if one was not seen: a
// floor without it would be too low.
func (p *Protocol) Record(writes []audit.Request) (*Recording, error) {
	r := &Recording{protocol: p, nodes: map[string]map[string]audit.Request{}}
	carriers := map[string]string{} // the node of each
	// The log has them in the order of their answers, and who watches may act before one is logged.
	byReceipt := slices.SortedStableFunc(slices.Values(writes), func(a, b audit.Request) int { return a.Received.Compare(b.Received) })
	for _, w := range byReceipt {
		if w.ResponseStatus.Code >= 300 {
			continue
		}
		node := w.ObjectRef.Name
		switch w.Verb + " " + w.Resource() {
		case "patch daemonsets":
			r.daemonSet = w
			continue
		case "create pods":
			var err error
			if node, err = NodeOf(w.Body); err != nil {
				return nil, err
			}
			carriers[w.ObjectRef.Name] = node
		case "delete pods":
			node = carriers[w.ObjectRef.Name] // device plugin's pods are not among them
		}
		if node == "" {
			continue // a pod that was not made in this window
		}
		for i := range p.stages {
			if s := &p.stages[i]; s.is(&w, r.nodes[node]) {
				if r.nodes[node] == nil {
					r.nodes[node] = map[string]audit.Request{}
				}
				r.nodes[node][s.name] = w
			}
		}
	}
	return r, r.whole()
}

func (r *Recording) whole() error {
	var errs []error
	for node, sent := range r.nodes {
		for i := range r.protocol.stages {
			s := &r.protocol.stages[i]
			if required := !s.optional || len(sent[s.pair].Body) > 0; required && len(sent[s.name].Body) == 0 {
				errs = append(errs, fmt.Errorf("node %s: the audit log has no request for the %s", node, s.name))
			}
		}
	}
	if r.protocol.daemonSet && len(r.daemonSet.Body) == 0 {
		errs = append(errs, errors.New("the audit log has no request for the device plugin's DaemonSet"))
	}
	return errors.Join(errs...)
}

// NodeOf is the node that a pod in the audit log was made for.
func NodeOf(pod json.RawMessage) (string, error) {
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

var (
	carrierUID = regexp.MustCompile(`"carrierUID":"([^"]+)"`)
	configUID  = regexp.MustCompile(`^(\{"kind":"NodeModulesConfig",.*?"metadata":\{"name":"[^"]*","uid":)"[^"]*"`)
	ownVersion = regexp.MustCompile(`("path":"/metadata/resourceVersion","value":)"[^"]*"`)
)

// carrierIn is the UID of the carrier that was made in the window: what its delete was for.
func carrierIn(deleted json.RawMessage) (string, error) {
	var options struct {
		Preconditions struct {
			UID string `json:"uid"`
		} `json:"preconditions"`
	}
	if err := json.Unmarshal(deleted, &options); err != nil || options.Preconditions.UID == "" {
		return "", errors.Join(errors.New("the delete of a carrier in the audit log does not name its UID"), err)
	}
	return options.Preconditions.UID, nil
}
