// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/testkit/env"
)

// byName chooses one namespace.
func byName(namespace string) *v1alpha1.ModulePolicySelector {
	return &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
}

// policed makes a namespace and a ModulePolicy for it, which goes with the test.
func policed(t *testing.T, admin client.Client, namespace string, change ...func(*v1alpha1.ModulePolicySpec)) *v1alpha1.ModulePolicy {
	t.Helper()
	p := &v1alpha1.ModulePolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: v1alpha1.ModulePolicySpec{Mode: v1alpha1.PolicyEnforce, NamespaceSelector: byName(namespace)}}
	for _, f := range change {
		f(&p.Spec)
	}
	if err := admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), p)); err != nil {
			t.Error(err)
		}
	})
	return p
}

type policyCase struct {
	policy func(*v1alpha1.ModulePolicySpec)
	// good and bad are changes of a valid Module that the policy allows and denies.
	good, bad func(*v1beta1.Module)
	// kernel for which the bad one is bad; empty: 6.1.0.
	kernel string
	then   string
}

func same(*v1beta1.Module) {}

// policies, of which each limits one thing.
func denyLoad(s *v1alpha1.ModulePolicySpec)  { s.Load = v1alpha1.Deny }
func denyBuild(s *v1alpha1.ModulePolicySpec) { s.Build = v1alpha1.Deny }
func denyArgs(s *v1alpha1.ModulePolicySpec)  { s.ModprobeArgs = v1alpha1.Deny }
func onlyNics(s *v1alpha1.ModulePolicySpec)  { s.Modules = []string{"nic-*", "nic", "old"} }
func onlyModes(s *v1alpha1.ModulePolicySpec) {
	s.Parameters = &v1alpha1.ModulePolicyParameters{Only: []string{"mode=*", "debug=0"}}
}
func onlyImages(s *v1alpha1.ModulePolicySpec) {
	s.Images = []string{"example.com/nic*", "one.example.com/a:1"}
}

func policiesOfNames() map[string]policyCase {
	args := func(m *v1beta1.Module) { container(m).Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-f"}} }
	const modprobe = "spec.moduleLoader.container.modprobe: ModulePolicy"
	return map[string]policyCase{
		"load": {policy: denyLoad, bad: same,
			good: func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil }, then: "lets no Module of namespace"},
		"build of all": {policy: denyBuild, good: same,
			bad: func(m *v1beta1.Module) {
				container(m).Build = &v1beta1.Build{DockerfileConfigMap: local("d")}
			}, then: "allows no image that is built in the cluster"},
		"build of a mapping": {policy: denyBuild, good: same,
			bad: func(m *v1beta1.Module) {
				container(m).KernelMappings[0].Build = &v1beta1.Build{DockerfileConfigMap: local("d")}
			}, then: "allows no image that is built in the cluster"},
		"args": {policy: denyArgs, good: same, bad: args, then: modprobe},
		"rawArgs": {policy: denyArgs, good: same,
			bad: func(m *v1beta1.Module) {
				container(m).Modprobe = v1beta1.ModprobeSpec{RawArgs: &v1beta1.ModprobeArgs{Load: []string{"x"}, Unload: []string{"-r", "x"}}}
			}, then: "allows no args and no rawArgs"},
		"args, of which nothing is said": {policy: onlyImages, good: same, bad: args, then: "allows no args and no rawArgs"},
		"args with modules":              {policy: onlyNics, good: same, bad: args, then: "allows no args and no rawArgs"},
		"args with parameters":           {policy: onlyModes, good: same, bad: args, then: "allows no args and no rawArgs"},
		"args that are allowed": {policy: func(s *v1alpha1.ModulePolicySpec) { onlyNics(s); s.ModprobeArgs = v1alpha1.Allow }, good: args,
			bad: func(m *v1beta1.Module) { container(m).Modprobe.ModuleName = "fs" }, then: `the kernel module "fs"`},
		"a name": {policy: onlyNics, good: func(m *v1beta1.Module) { container(m).Modprobe.ModuleName = "nic_core" },
			bad: func(m *v1beta1.Module) { container(m).Modprobe.ModuleName = "nico" }, then: `the kernel module "nico"`},
		"a dependency": {policy: onlyNics, good: func(m *v1beta1.Module) { container(m).Modprobe.ModulesLoadingOrder = []string{"nic", "nic-b"} },
			bad: func(m *v1beta1.Module) { container(m).Modprobe.ModulesLoadingOrder = []string{"nic", "b"} }, then: `the kernel module "b"`},
		"one to remove": {policy: onlyNics, good: func(m *v1beta1.Module) { container(m).InTreeModulesToRemove = []string{"old"} },
			bad: func(m *v1beta1.Module) { container(m).InTreeModulesToRemove = []string{"old", "ext4"} }, then: `the kernel module "ext4"`},
		"one to remove, of old": {policy: onlyNics, good: same,
			bad: func(m *v1beta1.Module) { container(m).InTreeModuleToRemove = "ext4" }, then: `the kernel module "ext4"`},
		"one that a mapping removes": {policy: onlyNics, kernel: "6.2.0",
			good: func(m *v1beta1.Module) { container(m).KernelMappings[1].InTreeModuleToRemove = "old" },
			bad: func(m *v1beta1.Module) {
				container(m).KernelMappings[1].InTreeModulesToRemove = []string{"old", "ext4"}
			},
			then: `the kernel module "ext4"`},
	}
}

func policiesOfTexts() map[string]policyCase {
	parameters := func(p ...string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).Modprobe.Parameters = p }
	}
	image := func(i string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).KernelMappings[0].ContainerImage = i }
	}
	return map[string]policyCase{
		"parameters": {policy: onlyModes, good: parameters("mode=fast", "debug=0"), bad: parameters("mode=fast", "debug=1"),
			then: `modprobe.parameters: ModulePolicy`},
		"no parameters": {policy: func(s *v1alpha1.ModulePolicySpec) { s.Parameters = &v1alpha1.ModulePolicyParameters{} },
			good: same, bad: parameters("debug=0"), then: `does not allow the parameter "debug=0"`},
		"a second parameter behind quotes": {policy: onlyModes, good: parameters("mode=a b"), bad: parameters(`mode="a" debug=1`),
			then: `does not allow the parameter`},
		"a second parameter after a quote": {policy: onlyModes, good: parameters("mode=à"), bad: parameters(`mode=a" debug=1 x="`),
			then: `does not allow the parameter`},
		"a second parameter": {policy: func(s *v1alpha1.ModulePolicySpec) {
			s.Parameters = &v1alpha1.ModulePolicyParameters{Only: []string{"mode*", `x="a b"`}}
		}, good: parameters("mode_=1", "mode", `x="a b"`), bad: parameters("mode debug=1"), then: `"mode debug=1"`},
		"any parameter, but one module": {policy: func(s *v1alpha1.ModulePolicySpec) {
			onlyNics(s)
			s.Parameters = &v1alpha1.ModulePolicyParameters{Only: []string{"*"}}
		}, good: parameters(`mode="a" debug=1`, "x y"), bad: func(m *v1beta1.Module) { container(m).Modprobe.ModuleName = "fs" },
			then: `the kernel module "fs"`},
		"an image":               {policy: onlyImages, good: image("one.example.com/a:1"), bad: image("one.example.com/a:12"), then: "com/a:12"},
		"another registry":       {policy: onlyImages, good: same, bad: image("example.com.evil.net/nic:1"), then: "example.com.evil.net"},
		"a beginning in between": {policy: onlyImages, good: same, bad: image("evil.net/example.com/nic:1"), then: "the image evil.net"},
		"the container's image": {policy: onlyImages, good: same, bad: func(m *v1beta1.Module) {
			container(m).KernelMappings[0].ContainerImage, container(m).ContainerImage = "", "evil.net/nic:1"
		}, then: "the image evil.net/nic:1"},
		"an image that is signed": {policy: onlyImages, bad: func(m *v1beta1.Module) {
			container(m).Sign = sign("/opt/a.ko")
			container(m).Sign.UnsignedImage = "evil.net/nic:1"
		}, good: func(m *v1beta1.Module) {
			container(m).Sign = sign("/opt/a.ko")
			container(m).Sign.UnsignedImage = "example.com/nic-unsigned:1"
		}, then: "the image evil.net/nic:1"},
	}
}

// TestModulePolicies: what is denied at admission is what the operator denies, in the same words.
func TestModulePolicies(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	cases := policiesOfNames()
	maps.Copy(cases, policiesOfTexts())
	maps.Copy(cases, policiesOfTheRest())
	// All of them before the first is looked at: the API server takes them up a while later.
	policies := map[string]*v1alpha1.ModulePolicy{}
	for name := range cases {
		policies[name] = policed(t, admin, e.Namespace(t), cases[name].policy)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policies[name]
			namespace := p.Name
			in := func(change func(*v1beta1.Module)) *v1beta1.Module {
				m := valid(change)
				m.Namespace = namespace
				return m
			}
			var err error
			eventually(t, "it is denied", func(ctx context.Context) (bool, error) {
				err = admin.Create(ctx, in(tc.bad), client.DryRunAll)
				return err != nil, nil
			})
			check(t, err, tc.then, p.Name)
			if tc.kernel == "" {
				tc.kernel = "6.1.0"
			}
			if denied := operatorDenies(p, in(tc.bad), tc.kernel); denied == nil {
				t.Error("the operator would not deny it")
			} else {
				// CEL cannot quote as Go does.
				check(t, err, strings.ReplaceAll(denied.Message, `\"`, `"`))
			}

			allowed := in(tc.good)
			if denied := operatorDenies(p, allowed, tc.kernel); denied != nil {
				t.Errorf("the operator denies what is allowed: %s", denied.Message)
			}
			check(t, admin.Create(t.Context(), allowed))
			changed := in(tc.bad)
			changed.ResourceVersion = allowed.ResourceVersion
			check(t, admin.Update(t.Context(), changed), tc.then)
		})
	}
}

// operatorDenies is what the operator's controllers say of a Module on a kernel, or nil.
func operatorDenies(p *v1alpha1.ModulePolicy, m *v1beta1.Module, kernel string) *reasons.Problem {
	set, labels := modulepolicy.Of([]v1alpha1.ModulePolicy{*p}), map[string]string{corev1.LabelMetadataName: m.Namespace}
	if m.Spec.ModuleLoader != nil {
		answer := desired.New(m).On(kernel, "amd64")
		wish := &modulepolicy.Wish{Config: &answer.State.Config}
		wish.Builds, wish.Unsigned = answer.Made()
		if m.Spec.Rollout != nil {
			wish.Drain = m.Spec.Rollout.Drain
		}
		if denied := set.Denied(wish, &modulepolicy.Place{Name: m.Namespace, Namespace: labels}); denied != nil {
			return denied
		}
	}
	return cmp.Or(set.DeniedTaint(p.Spec.Mode, m, labels), set.DeniedWorkload(p.Spec.Mode, m, labels))
}

// TestModulePoliciesChoose namespaces by labels, and leave to the operator what only nodes tell.
func TestModulePoliciesChoose(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) v1alpha1.ModulePolicyRequirement {
		return v1alpha1.ModulePolicyRequirement{Key: key, Operator: operator, Values: values}
	}
	name := expression(corev1.LabelMetadataName, "Exists")
	for what, tc := range map[string]struct {
		given v1alpha1.ModulePolicyRequirement
		then  bool
	}{
		"NotIn":               {given: expression(corev1.LabelMetadataName, "NotIn", "x", "y"), then: true},
		"In":                  {given: expression(corev1.LabelMetadataName, "In", "x", "y")},
		"NotIn, not there":    {given: expression("gone", "NotIn", "x"), then: true},
		"DoesNotExist":        {given: expression("gone", "DoesNotExist"), then: true},
		"Exists":              {given: expression("gone", "Exists")},
		"DoesNotExist, there": {given: expression(corev1.LabelMetadataName, "DoesNotExist")},
	} {
		t.Run(what, func(t *testing.T) {
			chosen, probe := e.Namespace(t), e.Namespace(t)
			p := policed(t, admin, chosen, func(s *v1alpha1.ModulePolicySpec) {
				s.Load = v1alpha1.Deny
				s.NamespaceSelector.MatchExpressions = []v1alpha1.ModulePolicyRequirement{name, tc.given}
			})
			// The probe, which is made later, tells when the API server has taken up both.
			policed(t, admin, probe, denyLoad)
			create := func(ctx context.Context, namespace string) error {
				m := valid()
				m.Namespace = namespace
				return admin.Create(ctx, m, client.DryRunAll)
			}
			eventually(t, "the probe is denied", func(ctx context.Context) (bool, error) { return create(ctx, probe) != nil, nil })
			if tc.then {
				eventually(t, "it is denied", func(ctx context.Context) (bool, error) { return create(ctx, chosen) != nil, nil })
				check(t, create(t.Context(), chosen), p.Name)
				return
			}
			check(t, create(t.Context(), chosen))
		})
	}
	t.Run("nodes", func(t *testing.T) {
		namespace, probe := e.Namespace(t), e.Namespace(t)
		policed(t, admin, namespace, func(s *v1alpha1.ModulePolicySpec) {
			s.Load, s.NodeSelector = v1alpha1.Deny, &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{"pool": "x"}}
		})
		policed(t, admin, probe, denyLoad)
		m := valid()
		m.Namespace = probe
		eventually(t, "the probe is denied", func(ctx context.Context) (bool, error) {
			return admin.Create(ctx, m, client.DryRunAll) != nil, nil
		})
		m.Namespace = namespace
		check(t, admin.Create(t.Context(), m))
	})
}

// TestModulePoliciesLookAtWhatLoads: a Module from before the policy can be labelled, paused, moved
// to other nodes, and deleted. Templates are denied where no kernel could make them fit.
func TestModulePoliciesLookAtWhatLoads(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	m := valid(func(m *v1beta1.Module) { m.Finalizers = []string{v1beta1.ModuleFinalizer} })
	m.Namespace = namespace
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	policed(t, admin, namespace, func(s *v1alpha1.ModulePolicySpec) { s.Images = []string{"example.com/nic/v*", "example.com/one:1"} })
	bad := m.DeepCopy()
	eventually(t, "it is denied", func(ctx context.Context) (bool, error) {
		container(bad).KernelMappings[0].ContainerImage = "example.com/fs:1"
		return admin.Update(ctx, bad, client.DryRunAll) != nil, nil
	})
	for _, change := range []func(){
		func() { m.Labels = map[string]string{"a": "b"} },
		func() { m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} },
		func() { m.Spec.Selector = map[string]string{"pool": "x"} },
	} {
		change()
		check(t, admin.Update(t.Context(), m))
	}
	for image, then := range map[string][]string{
		"example.com/nic/v1:$KERNEL_VERSION":  nil,
		"example.com/nic/$KERNEL_X:1":         nil,
		"$MOD_NAME/nic:1":                     nil,
		"example.com/one:$KERNEL_X":           nil,
		"example.com/fs:$KERNEL_VERSION":      {"the image example.com/fs:$KERNEL_VERSION"},
		"example.com/one:1-$KERNEL_VERSION":   {"does not allow the image"},
		"example.com/nic/w-${KERNEL_VERSION}": {"tag or a digest"},
	} {
		changed := m.DeepCopy()
		container(changed).KernelMappings = []v1beta1.KernelMapping{{Regexp: ".", ContainerImage: image}}
		t.Run(image, func(t *testing.T) { check(t, admin.Update(t.Context(), changed, client.DryRunAll), then...) })
	}
	check(t, admin.Delete(t.Context(), m))
	released := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	check(t, admin.Patch(t.Context(), m, released))
}

// warnings keeps what the API server warns of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.all, "\n")
	w.all = nil
	return text
}

func TestAModulePolicyThatIsTriedWarns(t *testing.T) {
	e := env.Get(t)
	heard := &warnings{}
	config := rest.CopyConfig(e.AdminConfig())
	config.WarningHandler = heard
	admin, namespace := e.Client(t, config), e.Namespace(t)
	policed(t, admin, namespace, func(s *v1alpha1.ModulePolicySpec) {
		s.Mode, s.Modules = v1alpha1.PolicyAudit, []string{"fs"}
	})
	m := valid()
	m.Namespace = namespace
	said := ""
	eventually(t, "it is warned of", func(ctx context.Context) (bool, error) {
		err := admin.Create(ctx, m.DeepCopy(), client.DryRunAll)
		said = heard.take()
		return said != "", err
	})
	if !strings.Contains(said, `does not allow the kernel module "nic"`) {
		t.Errorf("warned %q", said)
	}
	container(m).Modprobe.ModuleName = "fs"
	check(t, admin.Create(t.Context(), m, client.DryRunAll))
	if said := heard.take(); said != "" {
		t.Errorf("warned %q of what is allowed", said)
	}
}
