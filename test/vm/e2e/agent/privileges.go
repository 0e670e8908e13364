// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/privileges"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// agentLabels select the agent's pods.
var agentLabels = client.MatchingLabels{"app.kubernetes.io/name": "drover-agent"}

// undecided is what a look says while nothing is certain.
const undecided = ""

// daemonSet is the agent's as it is installed.
func (s *steps) daemonSet() (*appsv1.DaemonSet, error) {
	return privileges.Read(filepath.Join(s.Cache.Repository(), "config/agent/daemonset.yaml"))
}

// limits checks what the deployed agent's process is held to, as the kernel says it.
func (s *steps) limits(ctx context.Context) error {
	ds, err := s.daemonSet()
	if err != nil {
		return err
	}
	bits := map[corev1.Capability]int{"DAC_READ_SEARCH": 2, "SYS_MODULE": 16, "SYS_PTRACE": 19, "SYSLOG": 34}
	var mask uint64
	for _, c := range ds.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add {
		bit, known := bits[c]
		if !known {
			return fmt.Errorf("capability %s is not known here", c)
		}
		mask |= 1 << bit
	}
	want := fmt.Sprintf("CapPrm:\t%016[1]x\nCapEff:\t%016[1]x\nCapBnd:\t%016[1]x\nNoNewPrivs:\t1\nSeccomp:\t2", mask)
	return s.Expect(ctx, artifacts.Linux61, "grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/"+suite.AgentPID+"/status", want)
}

// whole shows that every behaviour holds with all that the DaemonSet allows.
func (s *steps) whole(ctx context.Context) error {
	for _, b := range s.behaviours() {
		seen, err := s.behave(ctx, b, nil, b.whole)
		if err != nil {
			return fmt.Errorf("%s: %w", b.says, err)
		}
		s.Say("   with everything: %s: %s", b.says, brief(seen))
	}
	return nil
}

// withoutEach takes away one item after another; for work on some, those that ITEMS names.
func (s *steps) withoutEach(ctx context.Context) error {
	items, err := privileges.List(s.agentPod)
	if err != nil {
		return err
	}
	probes := s.probes()
	for _, item := range items {
		if reason, ok := untested[item.Name]; ok {
			s.Say("   %s: not tested: %s", item.Name, reason)
			s.NotTested = append(s.NotTested, item.Name)
			continue
		}
		if s.Proved[item.Name] = false; probes[item.Name].says == "" {
			return fmt.Errorf("nothing here shows what %q is needed for", item.Name)
		}
	}
	for name := range probes {
		if !slices.ContainsFunc(items, func(i privileges.Item) bool { return i.Name == name }) {
			return fmt.Errorf("the DaemonSet has no %q any more", name)
		}
	}
	// A load that was refused for want of it is not tried again in this boot: nothing can be seen
	// after it.
	slices.SortStableFunc(items, func(a, b privileges.Item) int { return cmp.Compare(last[a.Name], last[b.Name]) })
	some := os.Getenv("ITEMS")
	var errs []error
	for _, item := range items {
		p, tested := probes[item.Name]
		if !tested || some != "" && !slices.Contains(strings.Split(some, ","), item.Name) {
			continue
		}
		if err := s.heal(ctx, p); err != nil {
			return err
		}
		begin := time.Now()
		remove := item.Remove
		if s.Breaks == "item" { // nothing is taken away
			remove = func(*corev1.PodSpec) {}
		}
		seen, err := s.behave(ctx, p.behaviour, remove, p.without)
		if err != nil {
			errs = append(errs, fmt.Errorf("without %s it must not be that %s: %w", item.Name, p.says, err))
			s.Say("   FAILED without %s: %v", item.Name, err)
			if s.Breaks != "" {
				break
			}
			continue
		}
		s.Say("   without %s (%.1f s): %s", item.Name, time.Since(begin).Seconds(), brief(seen))
		s.Proved[item.Name] = true
	}
	return errors.Join(append(errs, s.deployAgent(ctx, nil))...)
}

// last are the items that are taken away after the others.
var last = map[string]int{"capability SYS_MODULE": 1}

// heal makes sure that what is to be seen is not there yet, from an item before.
func (s *steps) heal(ctx context.Context, p probe) error {
	seen, err := p.look(ctx)
	if err != nil || !strings.Contains(seen, p.without) {
		return err
	}
	_, err = s.behave(ctx, p.behaviour, nil, p.whole)
	return err
}

func brief(seen string) string { return strings.ReplaceAll(seen[:min(len(seen), 240)], "\n", " | ") }

// behave deploys the agent, without an item, and looks at a behaviour until it is as it must be.
func (s *steps) behave(ctx context.Context, b behaviour, remove func(*corev1.PodSpec), want string) (seen string, err error) {
	if b.before != nil {
		if err := b.before(ctx); err != nil {
			return "", err
		}
	}
	if b.after != nil {
		defer func() { err = errors.Join(err, b.after(ctx)) }()
	}
	if err := s.deployAgent(ctx, remove); err != nil {
		return "", err
	}
	if b.begin != nil {
		if err := b.begin(ctx); err != nil {
			return "", err
		}
	}
	err = s.Eventually(ctx, "it is seen that "+want, func(ctx context.Context) error {
		var err error
		if seen, err = s.agentEnded(ctx); err == nil && seen == undecided {
			seen, err = b.look(ctx)
		}
		if err == nil && !strings.Contains(seen, want) {
			err = fmt.Errorf("seen is %q", seen)
		}
		return err
	})
	return seen, err
}

// deployAgent replaces the agent's pod by a new one, and returns when that is the only one.
func (s *steps) deployAgent(ctx context.Context, remove func(*corev1.PodSpec)) error {
	var pods corev1.PodList
	// The first process of a container misses a signal that comes before it listens, and would be
	// waited for until the end of its grace.
	if err := s.Eventually(ctx, "the last agent has started", func(ctx context.Context) error {
		if err := s.Client.List(ctx, &pods, client.InNamespace(suite.OperatorNamespace), agentLabels); err != nil {
			return err
		}
		return s.listening(ctx, pods.Items)
	}); err != nil {
		return err
	}
	old := map[string]bool{}
	for _, p := range pods.Items {
		old[string(p.UID)] = true
	}
	spec := s.agentPod.DeepCopy()
	if remove != nil {
		remove(spec)
	}
	if err := s.Eventually(ctx, "the DaemonSet is changed", func(ctx context.Context) error {
		ds := &appsv1.DaemonSet{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: "drover-agent"}, ds); err != nil {
			return err
		}
		ds.Spec.Template.Spec = *spec
		ds.Spec.Template.Annotations = map[string]string{"drover.dev/test-round": strconv.FormatInt(time.Now().UnixNano(), 10)}
		return s.Client.Update(ctx, ds)
	}); err != nil {
		return err
	}
	return s.Eventually(ctx, "there is a new agent's pod, and no other", func(ctx context.Context) error {
		if err := s.Client.List(ctx, &pods, client.InNamespace(suite.OperatorNamespace), agentLabels); err != nil {
			return err
		}
		if len(pods.Items) != 1 || old[string(pods.Items[0].UID)] || pods.Items[0].DeletionTimestamp != nil {
			return fmt.Errorf("there are %d pods, of old ones %d", len(pods.Items), len(old))
		}
		s.agentName = pods.Items[0].Name
		return nil
	})
}

// listening checks that agents which run have said that they start.
func (s *steps) listening(ctx context.Context, pods []corev1.Pod) error {
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil {
				continue
			}
			log, err := s.Core.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil {
				return err
			}
			if len(log) == 0 {
				return fmt.Errorf("%s has said nothing yet", p.Name)
			}
		}
	}
	return nil
}

// agentEnded tells how the new agent ended, if it did.
func (s *steps) agentEnded(ctx context.Context) (string, error) {
	pod := &corev1.Pod{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: s.agentName}, pod); err != nil {
		return "", err
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && strings.HasSuffix(w.Reason, "Error") {
			return "the agent is not started: " + w.Message, nil
		}
		if c.State.Terminated == nil && c.LastTerminationState.Terminated == nil {
			continue
		}
		log, err := s.Core.CoreV1().Pods(suite.OperatorNamespace).GetLogs(pod.Name,
			&corev1.PodLogOptions{Previous: c.State.Terminated == nil}).DoRaw(ctx)
		if err != nil {
			return "", err
		}
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		return "the agent ends: " + lines[len(lines)-1], nil
	}
	return undecided, nil
}

// orderSays is what the node's status says of a Module's order that is not fulfilled.
func (s *steps) orderSays(ctx context.Context, key client.ObjectKey) (string, error) {
	nmc, err := s.NodeConfig(ctx)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	for i := range nmc.Status.Attempts {
		if a := &nmc.Status.Attempts[i]; a.Namespace == key.Namespace && a.Name == key.Name {
			return fmt.Sprintf("%s: %s", a.Reason, a.Message), nil
		}
	}
	return undecided, nil
}
