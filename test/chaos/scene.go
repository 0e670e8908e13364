// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/chaos/judge"
)

const (
	moduleName = "chaos"
	kernelName = "chaos"
	selector   = "drover.dev/chaos"
	image      = "registry.example.com/chaos/chaos:%s-${KERNEL_FULL_VERSION}"
)

var key = types.NamespacedName{Namespace: "default", Name: moduleName}

// scene is a fleet and what happens to it.
type scene struct {
	f        *fleet.Fleet
	nodes    int
	patience time.Duration
	say      func(string, ...any)
	random   *rand.Rand
	log      *audit.Log
	history  *judge.History
	upgrades []upgrade
	killer   *killer
	result   result
	// reported is what report said last.
	reported string
	// away is how long the API server was, deleted when the Module was.
	away    time.Duration
	deleted time.Time
}

// upgrade is a new image under a policy, and what else happens meanwhile.
type upgrade struct {
	version string
	// rollout is spec.rollout; limit is how many nodes it lets be unavailable.
	rollout string
	limit   int
	// trouble happens when the upgrade is under way, beside the kills.
	trouble func(*scene, context.Context) error
}

func newScene(f *fleet.Fleet, nodes int, seed uint64, patience time.Duration, say func(string, ...any)) *scene {
	percent := func(p int) int { return max(1, nodes*p/100) }
	s := &scene{
		f: f, nodes: nodes, patience: patience, say: say, random: rand.New(rand.NewPCG(seed, seed)), //nolint:gosec // to be repeated
		log:     audit.Whole(f.Cluster.AuditLog),
		history: judge.NewHistory(key, func(image, kernel string) string { return hollow.BuildID(image, kernel, kernelName) }),
		killer:  &killer{f: f, say: say},
		upgrades: []upgrade{
			{version: "2", rollout: `null`, limit: percent(10), trouble: (*scene).none},
			{version: "3", rollout: `{"maxUnavailable":"20%"}`, limit: percent(20), trouble: (*scene).rebootMany},
			{version: "4", rollout: fmt.Sprintf(`{"maxUnavailable":%d}`, percent(15)), limit: percent(15), trouble: (*scene).outages},
		},
	}
	s.result = result{Nodes: nodes, Seed: seed, NoticeSeconds: notice.Seconds(), UnaskedUnloads: unknown, LimitExceeded: unknown}
	for i := range s.upgrades {
		s.result.Limits = append(s.result.Limits, s.upgrades[i].limit)
	}
	if os.Getenv("BREAK") == "limit" {
		s.upgrades[1].rollout = `{"maxUnavailable":"60%"}`
	}
	if os.Getenv("BREAK") != "" {
		s.upgrades = s.upgrades[:2] // agents take up to a minute to come back after outages; what is broken shows without
	}
	return s
}

// play is everything that happens.
func (s *scene) play(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	for _, u := range s.upgrades {
		if err := s.upgrade(ctx, u); err != nil {
			return fmt.Errorf("upgrade to %s: %w", u.version, err)
		}
		s.result.Upgrades++
	}
	if os.Getenv("BREAK") == "unload" {
		if err := s.f.Debug(ctx, "/rmmod?node=hollow-0&module="+kernelName); err != nil {
			return err
		}
		if err := s.everywhere(ctx, s.upgrades[len(s.upgrades)-1].version); err != nil {
			return err
		}
	}
	if err := s.remove(ctx); err != nil {
		return err
	}
	s.result.Converged = true
	return nil
}

// load puts the Module on all nodes.
func (s *scene) load(ctx context.Context) error {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	m.Spec.Selector = map[string]string{selector: "true"}
	m.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{}
	container := &m.Spec.ModuleLoader.Container
	container.Modprobe.ModuleName = kernelName
	container.KernelMappings = []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: fmt.Sprintf(image, "1")}}
	if err := s.f.Admin.Create(ctx, m); err != nil {
		return fmt.Errorf("create the Module: %w", err)
	}
	return s.everywhere(ctx, "1")
}

// upgrade changes the image, and makes trouble until every node has it.
func (s *scene) upgrade(ctx context.Context, u upgrade) error {
	s.say("upgrade to %s, at most %d nodes at a time; the operator is killed every %v", u.version, u.limit, killPeriod)
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/moduleLoader/container/kernelMappings/0/containerImage","value":%q},
		{"op":"add","path":"/spec/rollout","value":%s}]`, fmt.Sprintf(image, u.version), u.rollout)
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := s.f.Admin.Patch(ctx, m, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		return fmt.Errorf("change the Module: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	stop := s.killer.start(ctx, maxKilling)
	err := s.underWay(ctx, u)
	if err == nil {
		err = u.trouble(s, ctx)
	}
	if err == nil {
		err = s.until(ctx, "every kernel holds "+u.version, func(ctx context.Context) (bool, error) {
			n, err := s.holding(ctx, u.version)
			return n == s.nodes, err
		})
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	return s.everywhere(ctx, u.version)
}

// underWay waits until some kernels hold the new version, and not all.
func (s *scene) underWay(ctx context.Context, u upgrade) error {
	return s.until(ctx, "the first kernels hold "+u.version, func(ctx context.Context) (bool, error) {
		n, err := s.holding(ctx, u.version)
		return n > s.nodes/20, err
	})
}

// until waits for a condition, and says every few seconds how far the kernels are.
func (s *scene) until(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	said := time.Now()
	var last error
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			s.report(ctx)
		}
		var ok bool
		ok, last = done(ctx)
		return ok && last == nil, nil // the API server may be away
	})
	if err != nil {
		s.report(context.WithoutCancel(ctx))
		s.diagnose(context.WithoutCancel(ctx))
		return fmt.Errorf("wait until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// report says what the kernels hold, when that has changed.
func (s *scene) report(ctx context.Context) {
	truth, err := s.f.Truth(ctx)
	if err != nil {
		s.say("the fake kernels do not answer: %v", err)
		return
	}
	versions := map[string]int{}
	for _, n := range truth {
		versions[s.version(n)]++
	}
	line := fmt.Sprintf("kernels by version: %v; operator killed %d times", versions, s.killer.kills.Load())
	if line != s.reported {
		s.reported = line
		s.say("%s", line)
	}
}

// version is what a kernel holds.
func (s *scene) version(n fleet.NodeTruth) string {
	i := slices.IndexFunc(n.Loaded, func(m fleet.LoadedModule) bool { return m.Name == kernelName })
	if i < 0 {
		return "none"
	}
	for _, v := range append([]upgrade{{version: "1"}}, s.upgrades...) {
		if n.Loaded[i].BuildID == hollow.BuildID(imageFor(v.version, n.Kernel), n.Kernel, kernelName) {
			return v.version
		}
	}
	return "unknown"
}

// imageFor is the image after substitution.
func imageFor(version, kernel string) string {
	return strings.ReplaceAll(fmt.Sprintf(image, version), "${KERNEL_FULL_VERSION}", strings.ReplaceAll(kernel, "+", "_"))
}

// holding counts the kernels that hold a version.
func (s *scene) holding(ctx context.Context, version string) (int, error) {
	truth, err := s.f.Truth(ctx)
	n := 0
	for i := range truth {
		if s.version(truth[i]) == version {
			n++
		}
	}
	return n, err
}

// everywhere waits until all kernels hold a version, all nodes are labelled and the Module says so.
func (s *scene) everywhere(ctx context.Context, version string) error {
	err := s.until(ctx, version+" is ready everywhere", func(ctx context.Context) (bool, error) {
		n, err := s.holding(ctx, version)
		if err != nil || n < s.nodes {
			return false, err
		}
		nodes := &metav1.PartialObjectMetadataList{}
		nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := s.f.Admin.List(ctx, nodes, client.HasLabels{v1beta1.ReadyLabel(key.Namespace, key.Name)}); err != nil {
			return false, fmt.Errorf("count ready nodes: %w", err)
		}
		m := &v1beta1.Module{}
		if err := s.f.Admin.Get(ctx, key, m); err != nil {
			return false, fmt.Errorf("get the Module: %w", err)
		}
		ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != m.Generation {
			return false, fmt.Errorf("%d of %d nodes are labelled; the Module says %+v", len(nodes.Items), s.nodes, ready)
		}
		return len(nodes.Items) == s.nodes, nil
	})
	if err == nil {
		s.say("every kernel holds %s, every node is labelled and the Module is Ready", version)
	}
	return err
}

// remove deletes the Module, under kills too, and waits until nothing is left.
func (s *scene) remove(ctx context.Context) error {
	s.say("deleting the Module")
	s.deleted = time.Now()
	stop := s.killer.start(ctx, maxKilling/4)
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := s.f.Admin.Delete(ctx, m)
	if err == nil {
		err = s.until(ctx, "nothing is left", func(ctx context.Context) (bool, error) {
			n, err := s.holding(ctx, "none")
			if err != nil || n < s.nodes {
				return false, err
			}
			var configs v1beta1.NodeModulesConfigList
			if err := s.f.Admin.List(ctx, &configs); err != nil || len(configs.Items) > 0 {
				return false, errors.Join(err, fmt.Errorf("%d NodeModulesConfigs are left", len(configs.Items)))
			}
			err = s.f.Admin.Get(ctx, key, &v1beta1.Module{})
			if !apierrors.IsNotFound(err) {
				return false, errors.Join(err, errors.New("the Module is there"))
			}
			return true, nil
		})
	}
	return errors.Join(err, stop())
}
