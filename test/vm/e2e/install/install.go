// SPDX-License-Identifier: Apache-2.0

//go:build linux

package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/chart/lifecycle"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// workloads of the chart, each with the kind that its pods belong to.
var workloads = map[string]string{"drover-operator": "ReplicaSet", "drover-agent": "DaemonSet"}

// running is a pod that works.
type running struct {
	name string
	uid  types.UID
}

func (s *steps) begin(ctx context.Context) (err error) {
	if s.Breaks != "" && s.Breaks != breakUnload && s.Breaks != "image" {
		return fmt.Errorf("BREAK=%s: only %s and image can be broken", s.Breaks, breakUnload)
	}
	if s.commands, err = lifecycle.Read(s.Cache.Repository()); err != nil {
		return err
	}
	if err := lifecycle.Older(s.Cache.Repository(), s.olderDir(), older); err != nil {
		return err
	}
	if err := s.Begin(ctx); err != nil {
		return err
	}
	for _, version := range []string{older, newer} {
		s.digests[version] = map[string]string{}
		for name := range workloads {
			if s.digests[version][name], err = s.PushRelease(ctx, name, version); err != nil {
				return err
			}
		}
	}
	return s.StartNode(ctx, artifacts.Linux61, 0)
}

// olderDir is where the commands find the older chart.
func (s *steps) olderDir() string { return filepath.Join(s.Dir, "older") }

func (s *steps) installed(ctx context.Context) error {
	if _, err := s.shell().Run(ctx, s.olderDir(), s.commands.Install); err != nil {
		return err
	}
	if err := s.runs(ctx, older); err != nil {
		return err
	}
	return s.column(ctx, lifecycle.OlderColumn)
}

// runs waits until each workload has one pod, of the image of a version that was pushed, and keeps
// their names.
func (s *steps) runs(ctx context.Context, version string) error {
	s.pods = map[string]running{}
	if err := s.Eventually(ctx, "operator and agent of "+version+" are ready", s.Deployed); err != nil {
		return err
	}
	for name, owner := range workloads {
		if err := s.Eventually(ctx, name+" has one pod, of the image that was pushed", func(ctx context.Context) error {
			pod, err := s.pod(ctx, name, owner, s.digests[version][name])
			s.pods[name] = pod
			return err
		}); err != nil {
			return err
		}
	}
	return s.Eventually(ctx, "the agent's log says its version", func(ctx context.Context) error {
		logs, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "logs", s.pods["drover-agent"].name)
		if err == nil && !strings.Contains(logs, fmt.Sprintf("version=%q", version)) {
			err = fmt.Errorf("it does not say %s: %s", version, logs)
		}
		return err
	})
}

// pod is the only one of a workload. It must be on our node, of an image.
func (s *steps) pod(ctx context.Context, name, owner, digest string) (running, error) {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(suite.OperatorNamespace),
		client.MatchingLabels{"app.kubernetes.io/name": name}); err != nil {
		return running{}, err
	}
	if len(pods.Items) != 1 {
		return running{}, fmt.Errorf("there are %d pods", len(pods.Items))
	}
	p := pods.Items[0]
	by := metav1.GetControllerOf(&p)
	switch {
	case by == nil || by.Kind != owner || !strings.HasPrefix(by.Name, name):
		return running{}, fmt.Errorf("pod %s belongs to %v", p.Name, by)
	case p.Spec.NodeName != suite.NodeName(artifacts.Linux61):
		return running{}, fmt.Errorf("pod %s is on node %q", p.Name, p.Spec.NodeName)
	case len(p.Status.ContainerStatuses) != 1 || !strings.HasSuffix(p.Status.ContainerStatuses[0].ImageID, digest):
		return running{}, fmt.Errorf("pod %s is not of image %s: %+v", p.Name, digest, p.Status.ContainerStatuses)
	}
	return running{p.Name, p.UID}, nil
}

// column checks that the definition of Modules has one of the two printer columns, and not the
// other.
func (s *steps) column(ctx context.Context, want string) error {
	const path = "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}"
	columns, err := s.Kubectl(ctx, "get", "crd", "modules.kmm.sigs.x-k8s.io", "-o", path)
	if err != nil {
		return err
	}
	names := strings.Fields(columns)
	for _, name := range []string{lifecycle.Column, lifecycle.OlderColumn} {
		if slices.Contains(names, name) != (name == want) {
			return fmt.Errorf("the definition of Modules has the printer columns %s, want %s", columns, want)
		}
	}
	return nil
}

func (s *steps) loaded(ctx context.Context) error {
	if err := s.LoadModule(ctx); err != nil {
		return err
	}
	return s.sameAgent(ctx)
}

// sameAgent checks that the agent is still the pod that was seen first.
func (s *steps) sameAgent(ctx context.Context) error {
	now := &corev1.Pod{}
	was := s.pods["drover-agent"]
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: was.name}, now); err != nil {
		return err
	}
	if now.UID != was.uid || now.Status.ContainerStatuses[0].RestartCount != 0 {
		return fmt.Errorf("the agent is another one than %s: %+v", was.name, now.Status)
	}
	return nil
}

func (s *steps) upgraded(ctx context.Context) error {
	before := s.pods
	if _, err := s.shell().Run(ctx, s.Cache.Repository(), s.commands.Upgrade); err != nil {
		return err
	}
	if s.Breaks == breakUnload {
		if _, err := s.Console(ctx, "rmmod "+loads.Sample); err != nil {
			return err
		}
	}
	if err := s.runs(ctx, newer); err != nil {
		return err
	}
	for name, was := range before {
		if s.pods[name].uid == was.uid {
			return fmt.Errorf("%s is still pod %s", name, was.name)
		}
	}
	if err := s.column(ctx, lifecycle.Column); err != nil {
		return err
	}
	if err := s.answered(ctx); err != nil {
		return err
	}
	return s.oneLoad(ctx)
}

// answered asks for something that only a working operator and agent can deny, and then grant: a
// device node that is not there, and one that is.
func (s *steps) answered(ctx context.Context) error {
	for _, ask := range []struct {
		device string
		there  bool
	}{{"/dev/drover_sample9", false}, {"/dev/drover_sample1", true}} {
		patch := fmt.Sprintf(`{"spec":{"moduleLoader":{"container":{"readyWhen":[{"deviceNode":%q}]}}}}`, ask.device)
		if err := s.Client.Patch(ctx, loads.Module(loads.Loader, "", "", ""), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return err
		}
		if err := s.Eventually(ctx, "the Module says whether "+ask.device+" is there", func(ctx context.Context) error {
			if !ask.there {
				return s.ConditionIs(ctx, loads.Loader, v1beta1.ConditionReady, "False", v1beta1.ReasonNotUsable)
			}
			return s.Ready(ctx, artifacts.Linux61, loads.Loader, loads.Sample)
		}); err != nil {
			return err
		}
	}
	return nil
}

// oneLoad checks, by the kernel's log of this boot, that the module was loaded once and never
// unloaded.
func (s *steps) oneLoad(ctx context.Context) error {
	return errors.Join(
		s.InKernel(ctx, artifacts.Linux61, loads.Sample, true),
		s.Expect(ctx, artifacts.Linux61, suite.Loads, "1"),
		s.Expect(ctx, artifacts.Linux61, "dmesg | grep -c 'drover_sample: unloaded' || true", "0"),
	)
}
