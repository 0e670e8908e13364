// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/signer"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/doctor"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/cli/lint"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/cli/status"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/internal/testkit/clitest"
)

// Words that clear a terminal, write over a line, turn the direction of text, and are shown as a
// link to elsewhere; told is a part of them that shows that they came through.
const (
	poison = "\x1b[2Jtold\rall is well\u202e \x1b]8;;https://evil.example.com\x1b\\link\x1b]8;;\x1b\\"
	told   = "[2Jtold"
	// forged is a line of its own, if the break before it stays at the beginning of one.
	forged = "forged: node-1 is ready"
)

const steersPeople = "who looks after the cluster would see what the attacker wants, or click on it"

// judged ends an attempt to steer a terminal by texts: it had success if one of them does, and
// could not be made if none has what was said.
func (s *Scene) judged(texts ...string) error {
	s.Helper()
	for _, text := range texts {
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			return nil
		}
	}
	for _, text := range texts {
		if at := strings.Index(text, told); at > 0 {
			return stopped("it is shown as %q", text[at-1:min(len(text), at+len(poison))])
		}
	}
	s.Fatalf("the attempt could not be made: nothing of it comes through: %q", texts)
	return nil
}

// drover is what the command line tool prints.
func (s *Scene) drover(command clitest.New, args ...string) string {
	s.Helper()
	said, code := clitest.Run(s, clitest.Viewer(s, s.env, cluster.ViewerRole, ""), s.namespace, command, args...)
	var out strings.Builder
	if _, err := paint.Safe(&out).Write([]byte(said)); err != nil || code == 2 {
		s.Fatalf("the attempt could not be made: %v, exit code %d: %s", err, code, said)
	}
	return out.String()
}

// foreignNodeAttacks are what a kubelet says.
func foreignNodeAttacks() []Attack {
	return []Attack{
		{Who: Kubelet, What: "clear a terminal by what its node's status says", Why: steersPeople, Answer: Check("foreign-words"),
			Says: "?" + told, Try: func(s *Scene) error {
				mine := s.node(kernelVersion)
				s.create(s.module())
				node := &corev1.Node{}
				s.must(s.admin.Get(s.Context(), client.ObjectKey{Name: mine}, node))
				i := &node.Status.NodeInfo
				i.OSImage, i.ContainerRuntimeVersion, i.KubeletVersion = poison, poison, poison
				i.KernelVersion = poison
				node.Status.Conditions[0].Status, node.Status.Conditions[0].Message = corev1.ConditionFalse, poison
				s.must(s.kubelet(mine).Status().Update(s.Context(), node))
				s.awaits(v1beta1.ConditionKernelsCovered, mine)
				return s.judged(append(s.conditions(), s.drover(status.NewCommand, "nic"), s.drover(explain.NewCommand, "nic"),
					s.drover(explain.NewCommand, "nic", mine), s.drover(doctor.NewCommand))...)
			}},
	}
}

// foreignAgentAttacks are what an agent reports of its own node.
func foreignAgentAttacks() []Attack {
	freezes, bounds := "one node would hide what became of all others", Check("reports")
	failed := func(reason, message string) []v1beta1.NodeModuleAttempt {
		return []v1beta1.NodeModuleAttempt{{State: v1beta1.AttemptFailed, Reason: reason, Message: message}}
	}
	many := make([]v1beta1.NodeModuleAttempt, 10_000)
	for i := range many {
		many[i] = failed(v1beta1.ReasonLoadFailed, "")[0]
	}
	return []Attack{
		{Who: Agent, What: "freeze a Module's status by the reason `-`", Why: freezes, Answer: bounds, Says: "NoSuchDevice",
			Try: func(s *Scene) error { return s.freezes(failed("-", "x")) }},
		{Who: Agent, What: "freeze it by words that no object may have", Why: freezes, Answer: bounds, Says: "NoSuchDevice",
			Try: func(s *Scene) error { return s.freezes(failed("A\n"+poison, "\u009b31m"+poison)) }},
		{Who: Agent, What: "freeze it by as many words and attempts as a report may have", Why: freezes, Answer: bounds, Says: "NoSuchDevice",
			Try: func(s *Scene) error {
				most := slices.Clone(many[:500])
				for i := range most {
					most[i].Name, most[i].Message = fmt.Sprint("nic-", i), strings.Repeat("x", 2048)
				}
				return s.freezes(append(failed("-", "x"), most...))
			}},
		{Who: Agent, What: "report ten thousand attempts", Why: freezes, Answer: Schema, Says: "status.attempts: Too many",
			Try: func(s *Scene) error { return s.freezes(many) }},
		{Who: Agent, What: "report a message of a megabyte", Why: freezes, Answer: Schema, Says: "message: Too long",
			Try: func(s *Scene) error { return s.freezes(failed(v1beta1.ReasonLoadFailed, strings.Repeat("x", 1<<20))) }},
		{Who: Agent, What: "clear a terminal by what it reports", Why: steersPeople, Answer: Check("foreign-words"), Says: "?" + told,
			Try: func(s *Scene) error {
				texts, _ := s.reports(poison)
				return s.judged(texts...)
			}},
		{Who: Agent, What: "forge a line of what `drover` prints, by a line break", Why: steersPeople, Answer: Check("foreign-lines"),
			Says: "is not a line", Try: func(s *Scene) error {
				_, printed := s.reports(told + "\n" + forged + "\r\n" + forged)
				for line := range strings.Lines(strings.Join(printed, "\n")) {
					if strings.HasPrefix(line, forged) {
						return nil
					}
				}
				return stopped("the forged text is not a line of %q", printed)
			}},
	}
}

// twoOrders makes a Module on two nodes, and waits for their orders.
func (s *Scene) twoOrders() (mine, other string) {
	s.Helper()
	mine, other = s.node(kernelVersion), s.node(kernelVersion)
	s.must(s.editor().Create(s.Context(), s.module()))
	for _, node := range []string{mine, other} {
		s.await("the order for "+node, func(ctx context.Context) (bool, error) {
			config := &v1beta1.NodeModulesConfig{}
			err := s.admin.Get(ctx, client.ObjectKey{Name: node}, config)
			return len(config.Spec.Modules) > 0, client.IgnoreNotFound(err)
		})
	}
	return mine, other
}

// attempt has a node's agent report attempts of the scene's Module.
func (s *Scene) attempt(node string, attempts []v1beta1.NodeModuleAttempt) error {
	s.Helper()
	config := &v1beta1.NodeModulesConfig{}
	s.must(s.admin.Get(s.Context(), client.ObjectKey{Name: node}, config))
	base := config.DeepCopy()
	for _, a := range attempts {
		a.Namespace, a.Name, a.LastTransitionTime = s.namespace, cmp.Or(a.Name, "nic"), metav1.Now()
		config.Status.Attempts = append(config.Status.Attempts, a)
	}
	return s.agent(node).Status().Patch(s.Context(), config, client.MergeFrom(base))
}

// freezes ends when the Module's status tells what the other node's agent said after the attempt.
func (s *Scene) freezes(attempts []v1beta1.NodeModuleAttempt) error {
	s.Helper()
	mine, other := s.twoOrders()
	if err := s.attempt(mine, attempts); err != nil {
		return err
	}
	s.must(s.attempt(other, []v1beta1.NodeModuleAttempt{{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonNoSuchDevice, Message: "no"}}))
	says := ""
	err := wait.PollUntilContextTimeout(s.Context(), pace, patience, true, func(context.Context) (bool, error) {
		m := s.module() // the last look may take longer than the wait
		if err := s.admin.Get(s.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return false, err
		}
		if c := apimeta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLoaded); c != nil {
			says = c.Message
		}
		return strings.Contains(says, v1beta1.ReasonNoSuchDevice) && strings.Contains(says, other), nil
	})
	if wait.Interrupted(err) {
		return nil
	}
	s.must(err)
	return stopped("the Module's status says %q", says)
}

// awaits waits until a condition of the scene's Module says a word.
func (s *Scene) awaits(condition, word string) {
	s.Helper()
	last := ""
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("%s says %q", condition, last)
		}
	})
	s.await("what "+condition+" says", func(ctx context.Context) (bool, error) {
		m := s.module()
		err := s.admin.Get(ctx, client.ObjectKeyFromObject(m), m)
		if c := apimeta.FindStatusCondition(m.Status.Conditions, condition); c != nil {
			last = c.Message
		}
		return strings.Contains(last, word), err
	})
}

// conditions are the words of the scene's Module's conditions and events.
func (s *Scene) conditions() []string {
	s.Helper()
	m, events := s.module(), &eventsv1.EventList{}
	s.must(s.admin.Get(s.Context(), client.ObjectKeyFromObject(m), m))
	s.must(s.admin.List(s.Context(), events, client.InNamespace(s.namespace)))
	var all []string
	for _, c := range m.Status.Conditions {
		all = append(all, c.Reason+" "+c.Message)
	}
	for i := range events.Items {
		all = append(all, events.Items[i].Reason+" "+events.Items[i].Note)
	}
	return all
}

// reports has an agent say something, and returns all that says so, and what of it is printed.
func (s *Scene) reports(message string) (texts, printed []string) {
	s.Helper()
	mine, _ := s.twoOrders()
	s.must(s.attempt(mine, []v1beta1.NodeModuleAttempt{{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed, Message: message}}))
	s.awaits(v1beta1.ConditionLoaded, told)
	printed = []string{s.drover(status.NewCommand), s.drover(status.NewCommand, "nic"), s.drover(explain.NewCommand, "nic"),
		s.drover(explain.NewCommand, "nic", mine)}
	return append(s.conditions(), printed...), printed
}

// foreignImageAttacks are what an image says of itself, and in a build.
func foreignImageAttacks() []Attack {
	return []Attack{
		{Who: Image, What: "clear a terminal by what its kernel module says of itself", Why: steersPeople, Answer: Check("foreign-words"),
			Says: "?" + told, Try: func(s *Scene) error {
				dir := s.TempDir()
				modules := filepath.Join(dir, "opt/lib/modules", kernelVersion)
				s.must(os.MkdirAll(modules, 0o755))
				s.must(os.WriteFile(filepath.Join(modules, "nic.ko"), synth.Module{Name: "nic", Vermagic: "5" + poison,
					Depends: []string{poison}, Firmware: []string{poison}}.Bytes(), 0o600))
				return s.judged(s.drover(lint.NewCommand, dir, "--kernel", kernelVersion))
			}},
		{Who: Image, What: "clear a terminal by what it prints where it builds", Why: steersPeople, Answer: Check("foreign-words"),
			Says: "?" + told, Try: func(s *Scene) error {
				s.fails("error: " + poison)
				s.awaits(v1beta1.ConditionImagesAvailable, told)
				return s.judged(append(s.conditions(), s.drover(status.NewCommand), s.drover(explain.NewCommand, "nic"))...)
			}},
	}
}

// fails has a Job of the scene's Module end in its first step with a message.
func (s *Scene) fails(message string) {
	s.Helper()
	s.node(kernelVersion)
	s.must(s.editor().Create(s.Context(), s.module(func(m *v1beta1.Module) {
		container(m).Build = &v1beta1.Build{Native: &v1beta1.NativeBuild{ToolchainImage: "registry.example.com/gcc:12",
			SourceImage: "registry.example.com/source:1", Command: []string{"make"}, Artifacts: []string{"*.ko"}}}
	})))
	var jobs batchv1.JobList
	s.await("the Job that builds", func(ctx context.Context) (bool, error) {
		err := s.admin.List(ctx, &jobs, client.InNamespace(s.namespace))
		return len(jobs.Items) > 0, err
	})
	job := &jobs.Items[0]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: job.Name + "-pod", Labels: job.Spec.Template.Labels},
		Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	s.create(&corev1.ServiceAccount{ObjectMeta: meta(s.namespace, "default")}, pod)
	pod.Status.Phase = corev1.PodFailed
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: pipeline.StepBuild, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}}}}
	s.must(s.admin.Status().Update(s.Context(), pod))
	at := metav1.Now()
	job.Status = batchv1.JobStatus{StartTime: &at, Failed: 1, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
	for _, c := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	s.must(s.admin.Status().Update(s.Context(), job))
}

// foreignRegistryAttacks are errors of a registry.
func foreignRegistryAttacks() []Attack {
	return []Attack{{Who: Registry, What: "clear a terminal by the error with which it answers a build", Why: steersPeople,
		Answer: Check("foreign-words"), Says: "?" + told, Try: func(s *Scene) error {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"\u001b[2Jtold\rall is well\u202e"}]}`))
			}))
			defer server.Close()
			message := filepath.Join(s.TempDir(), "message")
			root := &cobra.Command{Use: "drover-signer", SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(signer.CheckCommand())
			root.SetArgs([]string{"check", "--image", strings.TrimPrefix(server.URL, "http://") + "/nic:1", "--insecure",
				"--hash", "h", "--state", s.TempDir(), "--termination-message", message})
			failed := root.ExecuteContext(s.Context())
			written, err := os.ReadFile(message)
			if err != nil {
				s.Fatalf("the attempt could not be made: %v: %v", err, failed)
			}
			r, err := result.Parse(string(written))
			s.must(err)
			return s.judged(r.Error)
		}}}
}

// spokeAttacks are what another cluster reports to its hub.
func spokeAttacks() []Attack {
	says := func(message string) hub.Report {
		return hub.ReportOf(&v1beta1.Module{Status: v1beta1.ModuleStatus{Conditions: []metav1.Condition{{
			Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonLoadFailed, Message: message,
		}}}})
	}
	return []Attack{
		{Who: Spoke, What: "clear a terminal of its hub's by what it reports", Why: steersPeople, Answer: Check("foreign-words"),
			Says: "?" + told, Try: func(s *Scene) error {
				return s.judged(says(poison).Message)
			}},
		{Who: Spoke, What: "forge a line about another cluster, by a line break", Why: steersPeople, Answer: Check("spoke-words"),
			Says: "one line", Try: func(*Scene) error {
				if message := says(told + "\n" + forged).Message; !strings.Contains(message, "\n") {
					return stopped("%q is one line", message)
				}
				return nil
			}},
	}
}
