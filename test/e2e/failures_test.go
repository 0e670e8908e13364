// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// tellWithin is how long a failure may go without its reason.
const tellWithin = 30 * time.Second

// failure is one way in which something really goes wrong.
type failure struct {
	// alone is the node that is spoilt for everybody else meanwhile; empty: hollow-0 and its
	// neighbours can be shared.
	alone string
	// given arranges what must be well before, on the node, and returns the Module that will fail.
	given func(s *scenario, node string) *scenario
	// breaks is what goes wrong, after given.
	breaks func(s *scenario, node string)
	// condition that names the reason, beside Ready; Loaded unless set.
	condition string
	// state of the node's own entry; empty: the node has nothing to say, such as when nothing reaches
	// it.
	state v1beta1.AttemptState
	// kernel are words of the kernel's own in the node's entry.
	kernel string
	// words in the condition's message.
	words []string
}

// TestFailureHasItsReason: whatever goes wrong is told apart from all else, in the Module's
// conditions, in the node's entry and by one event, soon, and with a next step in the
// documentation.
func TestFailureHasItsReason(t *testing.T) {
	steps := nextSteps(t)
	exclusive := map[string]*sync.Mutex{}
	for i := range everyNode {
		exclusive[everyNode[i]] = &sync.Mutex{}
	}
	for reason, f := range failures() {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if f.alone != "" {
				exclusive[f.alone].Lock()
				t.Cleanup(exclusive[f.alone].Unlock)
			}
			node := cmp.Or(f.alone, "hollow-0")
			s := given(t, "fails-"+strings.ToLower(reason))
			if f.given != nil {
				s = f.given(s, node)
			}
			begin := time.Now()
			f.breaks(s, node)
			s.toldNow(node, f, reason)
			s.eventually("it is an event", func(ctx context.Context) error { return s.oneEvent(ctx, reason) })
			took := time.Since(begin)
			t.Logf("REASON %s %.1f", reason, took.Seconds())
			if took > tellWithin {
				t.Errorf("%s took %s", reason, took)
			}
			if steps[reason] == "" {
				t.Errorf("docs/reference/reasons.md has no next step for %s", reason)
			}
		})
	}
}

// toldNow waits until the Module and the node's entry say so at the same time.
func (s *scenario) toldNow(node string, f failure, reason string) {
	s.Helper()
	s.eventually("the reason is told", func(ctx context.Context) error {
		m := &v1beta1.Module{}
		if err := shared.Admin.Get(ctx, s.key, m); err != nil {
			return err
		}
		return errors.Join(f.moduleTells(m, reason), s.entrySays(ctx, node, f, reason))
	})
}

// moduleTells objects unless the Module's conditions name the reason.
func (f failure) moduleTells(m *v1beta1.Module, reason string) error {
	return errors.Join(
		tells(m, cmp.Or(f.condition, v1beta1.ConditionLoaded), metav1.ConditionFalse, reason, f.words...),
		tells(m, v1beta1.ConditionReady, metav1.ConditionFalse, reason))
}

// nextSteps reads the documentation.
func nextSteps(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .+ \\| (.+) \\|$").FindAllStringSubmatch(string(content), -1) {
		steps[row[1]] = row[2]
	}
	return steps
}

// entrySays objects unless the node's entry tells of the failure.
func (s *scenario) entrySays(ctx context.Context, node string, f failure, reason string) error {
	if f.state == "" {
		return nil
	}
	c, err := config(ctx, node)
	if err != nil {
		return err
	}
	return f.entryTells(c, s.key, reason)
}

// entryTells objects unless the node's entry of the Module has the state, the reason and the
// kernel's words.
func (f failure) entryTells(c *v1beta1.NodeModulesConfig, module types.NamespacedName, reason string) error {
	i := slices.IndexFunc(c.Status.Attempts, func(a v1beta1.NodeModuleAttempt) bool {
		return a.Namespace == module.Namespace && a.Name == module.Name
	})
	if i < 0 {
		return fmt.Errorf("NodeModulesConfig %s says nothing of %s", c.Name, module)
	}
	a := &c.Status.Attempts[i]
	if a.State != f.state || a.Reason != reason || a.Message == "" || !strings.Contains(a.Message, f.kernel) {
		return fmt.Errorf("NodeModulesConfig %s says of %s: %s %s: %s", c.Name, module, a.State, a.Reason, a.Message)
	}
	return nil
}

// oneEvent objects unless exactly one event on the Module, of one occurrence, has the reason.
func (s *scenario) oneEvent(ctx context.Context, reason string) error {
	var list eventsv1.EventList
	if err := shared.Admin.List(ctx, &list, client.InNamespace(s.key.Namespace)); err != nil {
		return err
	}
	var found []eventsv1.Event
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Kind == "Module" && e.Regarding.Name == s.key.Name && e.Reason == reason {
			found = append(found, *e)
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("%d events on %s with the reason %s: %+v", len(found), s.key, reason, found)
	}
	if e := &found[0]; e.Type != corev1.EventTypeWarning || e.Series != nil || e.Note == "" {
		return fmt.Errorf("the event on %s is %s, %+v: %q", s.key, e.Type, e.Series, e.Note)
	}
	return nil
}

// recipe says what is wrong with the scenario's images.
func (s *scenario) recipe(what, detail string) {
	s.Helper()
	s.does("", "recipe", "pattern", "^registry.example.com/"+s.key.Namespace+"/", "recipe", what, "detail", detail)
}

// fault makes calls for the scenario's kernel module fail, until the end of the test.
func (s *scenario) fault(node, fault string, args ...string) {
	s.Helper()
	s.does(node, "fault", append([]string{"fault", fault, "module", s.kernelModule}, args...)...)
	s.finally(node, "mend", "module", s.kernelModule)
}

// finally is does at the end of the test, before the Module is deleted.
func (s *scenario) finally(node, verb string, args ...string) {
	s.Cleanup(func() {
		s.must(shared.Debug(context.WithoutCancel(s.Context()), debugPath(node, verb, args...)))
	})
}

// live creates the Module on a node and waits until all is well there.
func (s *scenario) live(node string, changes ...func(*v1beta1.Module)) {
	s.Helper()
	s.create(append([]func(*v1beta1.Module){s.on(node)}, changes...)...)
	s.eventually("all is well", s.ready)
}

// image gives the Module the next build.
func image(tag string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		mapping := &m.Spec.ModuleLoader.Container.KernelMappings[0]
		mapping.ContainerImage = strings.Replace(mapping.ContainerImage, ":1-", ":"+tag+"-", 1)
	}
}
