// SPDX-License-Identifier: Apache-2.0

// Package reported bounds what a node's agent has written, before anything is decided or shown by
// it. An agent may be of another version, or its node in foreign hands: what it says must not end
// where it stops the API server from taking an object of ours, nor steer a terminal.
package reported

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

// Bounds of a NodeModulesConfig's schema, and of what it does not bound. Bytes, if not entries.
const (
	maxModules   = 512  // entries
	maxAttempts  = 1024 // entries
	maxArtifacts = 2048 // entries
	maxList      = 256  // entries of any other list, and parameters
	maxHolders   = 16   // entries
	maxText      = 256
	maxImage     = 4096
	maxMessage   = 2048
	maxBuild     = 1024
	maxParameter = 1024
	maxCount     = 1 << 30
)

// states of attempts, as far as they are known here.
var states = []v1beta1.AttemptState{
	v1beta1.AttemptWaiting, v1beta1.AttemptFailed, v1beta1.AttemptInUse, v1beta1.AttemptAbsent, v1beta1.AttemptUnclaimed,
}

// identifier is what digests, build IDs, boot IDs and deliveries consist of.
var identifier = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._:/+=@]*$`)

// cleaner counts what it drops or changes.
type cleaner struct {
	orders  []v1beta1.NodeModuleSpec
	dropped int
}

// Clean makes of a node's status what an agent of this version could have written, and returns how
// many fields and entries it dropped or changed. A reason that is not of the closed set, such as a
// newer agent's, becomes AgentFailed and stays readable in the message. A config that is ordered
// stays as it is: it is the order's, and compared with it.
func Clean(config *v1beta1.NodeModulesConfig) (dropped int) {
	c, s := &cleaner{orders: config.Spec.Modules}, &config.Status
	s.Modules = entries(c, s.Modules, maxModules, c.module)
	s.Attempts = entries(c, s.Attempts, maxAttempts, c.attempt)
	s.Artifacts = entries(c, s.Artifacts, maxArtifacts, func(a *v1beta1.NodeArtifact) bool {
		return identifies(a.ID) && (a.Digest == "" || identifies(a.Digest))
	})
	return c.dropped
}

// entries are the first of a list, without those that mean nothing.
func entries[T any](c *cleaner, list []T, most int, means func(*T) bool) []T {
	if len(list) > most {
		c.dropped += len(list) - most
		list = list[:most]
	}
	kept := list[:0]
	for i := range list {
		if means(&list[i]) {
			kept = append(kept, list[i])
		} else {
			c.dropped++
		}
	}
	return kept
}

func identifies(id string) bool { return len(id) <= maxText && identifier.MatchString(id) }

// isModule reports whether there can be such a Module.
func isModule(namespace, name string) bool {
	return len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// text cleans a text and bounds it.
func (c *cleaner) text(text *string, most int) {
	if was := *text; was != "" {
		if *text = words.Fit(was, most); *text != was {
			c.dropped++
		}
	}
}

// id drops what identifies nothing.
func (c *cleaner) id(id *string) {
	if *id != "" && !identifies(*id) {
		*id = ""
		c.dropped++
	}
}

func (c *cleaner) count(n *int32) {
	if bounded := min(max(*n, 0), maxCount); bounded != *n {
		*n = bounded
		c.dropped++
	}
}

func (c *cleaner) texts(list []string, most int) []string {
	return entries(c, list, most, func(text *string) bool {
		c.text(text, maxImage)
		return true
	})
}

func (c *cleaner) module(m *v1beta1.NodeModuleStatus) bool {
	if !isModule(m.Namespace, m.Name) {
		return false
	}
	c.text(&m.ServiceAccountName, maxText)
	c.text(&m.Version, maxText)
	c.id(&m.BootID)
	if secret := m.ImageRepoSecret; secret != nil {
		c.text(&secret.Name, maxText)
	}
	m.Tolerations = entries(c, m.Tolerations, maxList, func(t *corev1.Toleration) bool {
		c.text(&t.Key, maxText)
		c.text(&t.Value, maxText)
		c.text((*string)(&t.Operator), maxText)
		c.text((*string)(&t.Effect), maxText)
		if s := t.TolerationSeconds; s != nil && *s != min(max(*s, -1), maxCount) {
			t.TolerationSeconds = nil
			c.dropped++
		}
		return true
	})
	ordered := func(o v1beta1.NodeModuleSpec) bool { return equality.Semantic.DeepEqual(&o.Config, m.Config) }
	if m.Config != nil && !slices.ContainsFunc(c.orders, ordered) {
		c.config(m.Config)
	}
	if m.Observed != nil {
		c.observed(m.Observed)
	}
	return true
}

func (c *cleaner) config(m *v1beta1.ModuleConfig) {
	if m.KernelVersion != "" && kernel.CheckVersion(m.KernelVersion) != nil {
		m.KernelVersion = ""
		c.dropped++
	}
	c.text(&m.ContainerImage, maxImage)
	c.text((*string)(&m.ImagePullPolicy), maxText)
	c.text(&m.InTreeModuleToRemove, maxText)
	m.InTreeModulesToRemove = c.texts(m.InTreeModulesToRemove, maxList)
	p := &m.Modprobe
	for _, text := range []*string{&p.ModuleName, &p.DirName, &p.FirmwarePath, &p.ModprobedDir} {
		c.text(text, maxImage)
	}
	p.Parameters, p.ModulesLoadingOrder = c.texts(p.Parameters, maxList), c.texts(p.ModulesLoadingOrder, maxList)
	for _, args := range []*v1beta1.ModprobeArgs{p.Args, p.RawArgs} {
		if args != nil {
			args.Load, args.Unload = c.texts(args.Load, maxList), c.texts(args.Unload, maxList)
		}
	}
}

func (c *cleaner) observed(o *v1beta1.ObservedModule) {
	for _, id := range []*string{&o.Delivery, &o.BuildID, &o.SrcVersion, &o.Taint} {
		c.id(id)
	}
	c.count(&o.Repairs)
	for name, value := range o.Parameters {
		was := value
		c.text(&value, maxParameter)
		switch {
		case !identifies(name) || len(o.Parameters) > maxList:
			delete(o.Parameters, name)
			c.dropped++
		case value != was:
			o.Parameters[name] = value
		}
	}
}

func (c *cleaner) attempt(a *v1beta1.NodeModuleAttempt) bool {
	if !isModule(a.Namespace, a.Name) || !slices.Contains(states, a.State) {
		return false
	}
	if a.Reason != "" && !reasons.Known(a.Reason) {
		a.Message = strings.TrimSuffix(words.Fit(a.Reason, maxText)+": "+a.Message, ": ")
		a.Reason = v1beta1.ReasonAgentFailed
		c.dropped++
	}
	c.id(&a.Order)
	c.text(&a.Message, maxMessage)
	c.count(&a.Attempt)
	c.count(&a.Strikes)
	c.holders(a)
	if a.Strike != nil {
		c.id(&a.Strike.Delivery)
		c.text(&a.Strike.Build, maxBuild)
	}
	return true
}

// holders cleans the pods that hold a module. A UID is of the pod in its place; where they do not
// match, none counts, and the pods are meant by their names.
func (c *cleaner) holders(a *v1beta1.NodeModuleAttempt) {
	if len(a.HolderUIDs) > 0 && len(a.HolderUIDs) != len(a.Holders) {
		a.HolderUIDs = nil
		c.dropped++
	}
	uids, at := a.HolderUIDs[:0], -1
	a.Holders = entries(c, a.Holders, maxHolders, func(pod *string) bool {
		at++
		namespace, name, ok := strings.Cut(*pod, "/")
		if !ok || !isModule(namespace, name) || len(a.HolderUIDs) > 0 && !identifies(a.HolderUIDs[at]) {
			return false
		}
		if len(a.HolderUIDs) > 0 {
			uids = append(uids, a.HolderUIDs[at])
		}
		return true
	})
	a.HolderUIDs = uids
}
