// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// Protocol is what Drover's components send for each node, each request once, and what each has to
// wait for.
type Protocol struct {
	stages []stage
	// daemonSet: the device plugin's DaemonSet is applied at first.
	daemonSet bool
}

// stage is one request for a node.
type stage struct {
	name string
	// is says whether a request is it; sofar are the stages that the node had before. Of several
	// requests of one stage, the last is sent again.
	is func(r *audit.Request, sofar map[string]audit.Request) bool
	// agent: the node's agent sends it; all others are the operator's.
	agent bool
	// after are the stages that its sender has to know of: it has their answers, or a watch has shown
	// it what they wrote.
	after []string
	// when is what a kubelet or a controller must have done.
	when func(*node) bool
	// A rollout lets so many nodes be unavailable: takes a place, and frees it.
	takes, frees bool
	// restarts: device plugin's pods of before are deleted that are still ready, as the operator does
	// where the DaemonSet controller has not seen the label go.
	restarts bool
	// optional: a node may do without, such as one whose agent was so fast that nobody saw the module
	// go, or the device plugin's pod. The floor sends nothing there then, either.
	optional bool
	// pair is a stage without which an optional one must not be: a label that went has to come back.
	pair string
}

// Names of stages.
const (
	carrier    = "carrier"
	next       = "order ahead"
	imported   = "report ahead"
	uncarry    = "delete of the carrier"
	order      = "order"
	report     = "report"
	ready      = "ready label"
	unready    = "removal of the ready label"
	plugged    = "device plugin's label"
	unplugged  = "removal of the device plugin's label"
	absent     = "order to unload"
	withdrawal = "withdrawal of the order"
	gone       = "delete of the NodeModulesConfig"
)

// Load is a Module's first load on a node, with a device plugin.
func Load(module types.NamespacedName) *Protocol {
	return &Protocol{daemonSet: true, stages: []stage{
		{name: carrier, is: request("create pods")},
		{name: order, is: request("patch nodemodulesconfigs"), after: []string{carrier}},
		{name: report, agent: true, is: request("patch nodemodulesconfigs/status"), after: []string{order}, when: carrierRuns},
		{name: ready, is: sets(v1beta1.ReadyLabel(module.Namespace, module.Name)), after: []string{report}},
		{name: uncarry, is: request("delete pods"), after: []string{ready}},
		{name: plugged, is: sets(v1beta1.DevicePluginReadyLabel(module.Namespace, module.Name)), after: []string{ready}, when: pluginRuns},
	}}
}

// Upgrade is a change of a Module's image: brought to the node, ordered when it is its turn, loaded
// in place of the one before. The ready label goes meanwhile, and the device plugin's pod with it.
func Upgrade(module types.NamespacedName) *Protocol {
	readyLabel, pluginLabel := v1beta1.ReadyLabel(module.Namespace, module.Name), v1beta1.DevicePluginReadyLabel(module.Namespace, module.Name)
	return &Protocol{stages: []stage{
		{name: carrier, is: request("create pods")},
		{name: next, is: has("patch nodemodulesconfigs", `"next":`, true), after: []string{carrier}},
		{name: imported, agent: true, is: reportBefore(order), after: []string{next}, when: carrierRuns},
		{name: uncarry, is: request("delete pods"), after: []string{imported}},
		{name: order, is: has("patch nodemodulesconfigs", `"next":`, false), after: []string{imported}, takes: true},
		{name: unready, is: removes(readyLabel), after: []string{order}, optional: true},
		{name: report, agent: true, is: reportAfter(order), after: []string{order}},
		{name: ready, is: sets(readyLabel), after: []string{report, unready}, frees: true, restarts: true, optional: true},
		{name: unplugged, is: removes(pluginLabel), after: []string{unready}, when: pluginStops, optional: true,
			pair: plugged},
		{name: plugged, is: sets(pluginLabel), after: []string{ready, unplugged}, when: pluginRuns, optional: true,
			pair: unplugged},
	}}
}

// Delete is what remains to be done for a node when a Module is deleted that was the only one.
func Delete(module types.NamespacedName) *Protocol {
	return &Protocol{stages: []stage{
		{name: absent, is: has("patch nodemodulesconfigs", `"remove"`, false)},
		{name: report, agent: true, is: request("patch nodemodulesconfigs/status"), after: []string{absent}},
		{name: unplugged, is: removes(v1beta1.DevicePluginReadyLabel(module.Namespace, module.Name)), when: pluginStops, after: []string{absent}},
		{name: unready, is: removes(v1beta1.ReadyLabel(module.Namespace, module.Name)), after: []string{report}},
		{name: withdrawal, is: has("patch nodemodulesconfigs", `"remove"`, true), after: []string{report}},
		{name: gone, is: request("delete nodemodulesconfigs"), after: []string{withdrawal}},
	}}
}

func carrierRuns(n *node) bool { return n.runs[n.carrier] }

func pluginRuns(n *node) bool {
	for pod, ready := range n.plugins {
		if ready && !n.old[pod] {
			return true
		}
	}
	return false
}

func pluginStops(n *node) bool {
	for pod := range n.old {
		if n.plugins[pod] {
			return false
		}
	}
	return true
}

// request matches requests by verb and resource.
func request(what string) func(*audit.Request, map[string]audit.Request) bool {
	return func(r *audit.Request, _ map[string]audit.Request) bool { return r.Verb+" "+r.Resource() == what }
}

// has matches requests whose body has a text in it, or has not.
func has(what, text string, has bool) func(*audit.Request, map[string]audit.Request) bool {
	return func(r *audit.Request, _ map[string]audit.Request) bool {
		return r.Verb+" "+r.Resource() == what && bytes.Contains(r.Body, []byte(text)) == has
	}
}

func sets(label string) func(*audit.Request, map[string]audit.Request) bool {
	return has("patch nodes", `"`+label+`":""`, true)
}

func removes(label string) func(*audit.Request, map[string]audit.Request) bool {
	return has("patch nodes", `"`+label+`":null`, true)
}

func reportBefore(stage string) func(*audit.Request, map[string]audit.Request) bool {
	return func(r *audit.Request, sofar map[string]audit.Request) bool {
		_, after := sofar[stage]
		return r.Verb+" "+r.Resource() == "patch nodemodulesconfigs/status" && !after
	}
}

func reportAfter(stage string) func(*audit.Request, map[string]audit.Request) bool {
	return func(r *audit.Request, sofar map[string]audit.Request) bool {
		_, after := sofar[stage]
		return r.Verb+" "+r.Resource() == "patch nodemodulesconfigs/status" && after
	}
}
