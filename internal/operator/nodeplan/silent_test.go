// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestAnOrderThatNobodyAnswers: the node holds the image, so no carrier shows that its agent is
// away. Each row begins with a node that has what it was ordered.
func TestAnOrderThatNobodyAnswers(t *testing.T) {
	parameters := func(s *scene) {
		config := &s.node.Config.Spec.Modules[0].Config
		config.Modprobe.Parameters = []string{"debug=1"}
		s.module.Spec.ModuleLoader.Container.Modprobe.Parameters = config.Modprobe.Parameters
	}
	booted := func(s *scene) { s.node.Node.Status.NodeInfo.BootID = "boot-2" }
	leaves := func(s *scene) {
		s.node.Node.Labels = nil
		s.node.Config.Spec.Modules[0].State, s.node.Config.Finalizers = v1beta1.NodeModuleAbsent, []string{OrdersFinalizer}
	}
	since := func(d time.Duration) func(*scene) { return func(s *scene) { s.silent = d } }
	says := func(state v1beta1.AttemptState, reason string) func(*scene) {
		return func(s *scene) {
			s.node.Config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", State: state, Reason: reason}}
		}
	}
	waits, missing := outcome{Patience: AnswerTime}, outcome{Told: v1beta1.ReasonAgentMissing}
	for name, tc := range map[string]struct {
		given []func(*scene)
		then  outcome
	}{
		"it is as it was ordered":             {nil, outcome{}},
		"other parameters":                    {[]func(*scene){parameters}, waits},
		"other parameters, for a while":       {[]func(*scene){parameters, since(time.Minute)}, outcome{Patience: AnswerTime - time.Minute}},
		"other parameters, for too long":      {[]func(*scene){parameters, since(AnswerTime)}, missing},
		"other parameters, which are refused": {[]func(*scene){parameters, since(AnswerTime), says("Failed", "LoadFailed")}, outcome{}},
		"other parameters, and it is in use":  {[]func(*scene){parameters, since(AnswerTime), says("InUse", "InUse")}, outcome{}},
		"another boot, for too long":          {[]func(*scene){booted, since(AnswerTime)}, missing},
		"deselected, for too long":            {[]func(*scene){leaves, since(AnswerTime)}, missing},
		"deselected, and it is in use":        {[]func(*scene){leaves, since(AnswerTime), says("InUse", "InUse")}, outcome{}},
		"a node that is not Ready": {[]func(*scene){parameters, since(AnswerTime), func(s *scene) {
			s.node.Node.Status.Conditions = nil
		}}, outcome{}},
		"a paused order": {[]func(*scene){parameters, since(AnswerTime), func(s *scene) {
			s.node.Config.Spec.Modules[0].Paused = true
			s.module.Annotations = map[string]string{v1beta1.PausedAnnotation: ""}
		}}, outcome{}},
		"a Module that leaves has its own words": {[]func(*scene){leaves, since(AnswerTime), func(s *scene) {
			s.module.DeletionTimestamp = &metav1.Time{Time: noon}
			s.module.Spec.DeletionTimeout = &metav1.Duration{Duration: time.Hour}
		}}, outcome{Patience: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			s := driven(t)
			s.module.Spec.DRA, s.devices = nil, Devices{}
			for _, change := range tc.given {
				change(s)
			}
			out := s.play(t)
			got := outcome{Writes: out.Writes, Creates: out.Creates, Patience: out.Patience, Told: out.Told}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}
