// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/shared/words"
)

// State says who has to do something about a thing.
type State string

// The states of things.
const (
	// Fine is not in the way.
	Fine State = "ok"
	// Apply is in the way until --apply was run.
	Apply State = "apply"
	// You is in the way until a person did something.
	You State = "you"
	// Later is not in the way: Drover's operator deals with it, or it can wait.
	Later State = "later"
)

// Item is what was found of one thing.
type Item struct {
	Kind   string `json:"kind"`
	Object string `json:"object,omitempty"`
	State  State  `json:"state"`
	Says   string `json:"says"`
	// Next is what to do, or who will do it.
	Next string `json:"next,omitempty"`
}

// Report is all that was found, and what follows.
type Report struct {
	// Clear says that nothing is in the way.
	Clear  bool   `json:"clear"`
	Answer string `json:"answer"`
	Next   string `json:"next"`
	Items  []Item `json:"items"`
}

const applyNext = "drover migrate kmm --apply"

// judge says of everything that was found whether it is in the way.
func judge(f *Found) *Report {
	var items []Item
	items = append(items, f.subscriptions()...)
	items = append(items, f.operators()...)
	items = append(items, f.leases()...)
	items = append(items, f.workers()...)
	items = append(items, f.webhooks()...)
	items = append(items, f.definitions()...)
	items = append(items, f.releases()...)
	items = append(items, f.objects()...)
	r := &Report{Items: items}
	count := map[State]int{}
	for _, item := range items {
		count[item.State]++
	}
	switch {
	case len(items) == 0:
		r.Clear, r.Answer, r.Next = true, "There is nothing of KMM in this cluster.", "install Drover"
	case count[You] > 0:
		r.Answer = fmt.Sprintf("In Drover's way: %s for you, and %s for --apply.", words.Count(count[You], "thing"),
			words.Count(count[Apply], "thing"))
		first := slices.IndexFunc(items, func(i Item) bool { return i.State == You })
		r.Next = items[first].Next
	case count[Apply] > 0:
		r.Answer, r.Next = fmt.Sprintf("In Drover's way: %s, all for --apply.", words.Count(count[Apply], "thing")), applyNext
	default:
		r.Clear, r.Answer, r.Next = true, "Nothing is in Drover's way.", "install Drover, such as by `make deploy`"
	}
	return r
}

// subscriptions are about OLM, which starts again what it manages.
func (f *Found) subscriptions() []Item {
	items := make([]Item, 0, len(f.OLM))
	for _, o := range f.OLM {
		items = append(items, Item{
			Kind: "olm", Object: o.String(), State: You, Says: "OLM installed KMM, and starts its operator again when it is stopped",
			Next: fmt.Sprintf("kubectl delete %s %s -n %s    # OLM leaves the definitions, and all objects of them", o.Kind, o.Name, o.Namespace),
		})
	}
	return items
}

func (f *Found) operators() []Item {
	items := make([]Item, 0, len(f.Deployments))
	for _, d := range f.Deployments {
		item := Item{Kind: d.Role, Object: d.Namespace + "/" + d.Name, State: Fine, Says: "stopped"}
		if d.Replicas > 0 || d.Pods > 0 {
			item.State = Apply
			item.Says = fmt.Sprintf("wants %s, of which there are %d", words.Count(int(d.Replicas), "pod"), d.Pods)
			item.Next = "--apply scales it to 0, and notes the number for --back"
		}
		if d.Release != "" {
			item.Says += "; Helm's release " + d.Release + " installed it"
			item.Next = strings.TrimPrefix(item.Next+"; `helm upgrade` of the release starts it again, unless its values leave KMM out", "; ")
		}
		items = append(items, item)
	}
	return items
}

// leases are about operators that nobody knows: those of Deployments end with them.
func (f *Found) leases() []Item {
	items := make([]Item, 0, len(f.Leases))
	for _, l := range f.Leases {
		item := Item{Kind: "lease", Object: l.Namespace + "/" + peerLease, State: Fine, Says: "no pod holds it"}
		switch {
		case l.Pod == "":
		case f.runs(l.Namespace):
			item.State, item.Says, item.Next = Apply, "pod "+l.Pod+" holds it: KMM's operator is at work", "--apply waits until it has ended"
		default:
			item.State, item.Says = You, "pod "+l.Pod+" holds it: an operator is at work that no Deployment of KMM runs"
			item.Next = fmt.Sprintf("stop what runs it, such as `kubectl delete pod %s -n %s`", l.Pod, l.Namespace)
		}
		items = append(items, item)
	}
	return items
}

// runs reports whether a Deployment of KMM's operator is in the namespace.
func (f *Found) runs(namespace string) bool {
	return slices.ContainsFunc(f.Deployments, func(d Deployment) bool { return d.Namespace == namespace && d.Role == roleOperator })
}

// workers are pods of KMM that load or unload at this moment, and those that ended and were never
// collected.
func (f *Found) workers() []Item {
	var items []Item
	if len(f.Working) > 0 {
		items = append(items, Item{
			Kind: "workers", State: Apply, Says: "KMM loads or unloads now, in " + words.Count(len(f.Working), "pod") + ": " + names(f.Working),
			Next: "--apply waits until they have ended",
		})
	}
	if len(f.Ended) > 0 {
		items = append(items, Item{
			Kind: "workers", State: Apply, Says: "KMM has not collected " + words.Count(len(f.Ended), "pod") + ", which ended: " + names(f.Ended),
			Next: "--apply removes them once KMM has stopped",
		})
	}
	return items
}

func (f *Found) webhooks() []Item {
	items := make([]Item, 0, len(f.Webhooks))
	for _, w := range f.Webhooks {
		item := Item{Kind: "webhook", Object: w.Name, State: Apply, Says: "it has no server at " + w.Server + ": every write of a Module fails"}
		if w.Served {
			item.Says = w.Server + " serves it: it judges Modules by KMM's rules"
		}
		item.Next = "--apply removes this " + w.Kind + ", and keeps a copy for --back"
		items = append(items, item)
	}
	return items
}

func (f *Found) definitions() []Item {
	items := make([]Item, 0, len(f.Definitions))
	for _, d := range f.Definitions {
		item := Item{Kind: "definition", Object: d.Name, State: Fine}
		says := []string{"serves " + strings.Join(d.Served, ", "), "has stored " + strings.Join(d.Stored, ", ")}
		var todo []string
		if d.Converts {
			says, todo = append(says, "KMM's webhook converts"), append(todo, "sets its conversion to None")
		}
		if len(d.Owners) > 0 {
			says = append(says, "its fields belong to "+strings.Join(d.Owners, ", "))
			todo = append(todo, "gives its fields free, so that Drover's definition can be applied")
		}
		if d.Release != "" && !d.Kept {
			says = append(says, "Helm's release "+d.Release+" may delete it")
			todo = append(todo, "has Helm keep it")
		}
		if !d.Ours {
			says, item.State, item.Next, todo = append(says, "Drover does not use it"), Later, "leave it", nil
			if slices.Contains(kmmAlone, d.Name) {
				item.Next = "delete it when you are sure that you do not go back"
			}
		}
		if len(todo) > 0 {
			item.State, item.Next = Apply, "--apply "+strings.Join(todo, "; ")
		}
		item.Says = strings.Join(says, "; ")
		items = append(items, item)
	}
	return items
}

func (f *Found) releases() []Item {
	items := make([]Item, 0, len(f.Releases))
	for _, r := range f.Releases {
		item := Item{
			Kind: "helm", Object: r.Namespace + "/" + r.Name, State: Fine, Says: "`helm uninstall` keeps the definitions",
		}
		switch {
		case r.Problem != "":
			item.State, item.Says = You, "what Helm would delete cannot be read: "+r.Problem
			item.Next = "never run `helm uninstall " + r.Name + "` while its definitions hold objects: it would delete them all"
			if len(r.Records) == 0 { // there is no release any more, or Helm keeps it elsewhere
				item.State = Later
			}
		case len(r.Deletes) > 0:
			item.State = Apply
			item.Says = "`helm uninstall` would delete " + strings.Join(r.Deletes, ", ") + " with all objects, now or after `helm rollback`"
			item.Next = "--apply marks them as to be kept, in the record of each of the release's revisions"
		}
		items = append(items, item)
	}
	return items
}

// objects are what Drover's operator takes over.
func (f *Found) objects() []Item {
	var items []Item
	add := func(n int, kind, object string, state State, says, next string) {
		if n > 0 {
			items = append(items, Item{Kind: kind, Object: object, State: state, Says: says, Next: next})
		}
	}
	add(f.Modules, "modules", "", Fine, words.Count(f.Modules, "Module")+" to take over", "")
	add(len(f.Building), "modules", "", Later, words.Count(len(f.Building), "Module")+" build or sign images: "+names(f.Building),
		"Drover does so with the component config/build; images that exist are used as they are")
	add(len(f.Toolkit), "modules", "", Later, "the Dockerfile uses DTK_AUTO, which Drover does not fill in: "+names(f.Toolkit),
		"name the Driver Toolkit's image in the Dockerfile before the next build")
	add(f.Configs, "nodes", "", Fine, fmt.Sprintf("%s of nodes, with %s that KMM reports as loaded",
		words.Count(f.Configs, "NodeModulesConfig"), words.Count(f.Loaded, "kernel module")), "")
	add(f.DaemonSets, "plugins", "", Later, words.Count(f.DaemonSets, "DaemonSet")+" of device plugins and DRA drivers",
		"Drover's operator takes them over, with their pods")
	add(f.Finalized, "plugins", "", Later, words.Count(f.Finalized, "pod")+" with KMM's finalizer "+podFinalizer,
		"Drover's operator removes it when such a pod ends")
	add(f.Targets, "labels", "", Later, words.Count(f.Targets, "node")+" with KMM's labels "+targetSuffix, "Drover's operator removes them")
	add(f.Classes, "devices", "", Later, words.Count(f.Classes, "DeviceClass")+" of KMM", "Drover's operator takes them over")
	add(f.Preflights, "preflights", "", Fine, words.Count(f.Preflights, "PreflightValidation"), "")
	add(len(f.Unread), "preflights", "", Apply, "cannot be read: "+strings.Join(f.Unread, "; "), "--apply sets the conversion to None")
	return items
}
