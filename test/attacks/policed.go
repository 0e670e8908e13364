// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// ModulePolicies, each of which limits one thing.
func onlyModules(s *v1alpha1.ModulePolicySpec) { s.Modules = []string{"nic", "nic-*"} }
func onlyImages(s *v1alpha1.ModulePolicySpec)  { s.Images = []string{"registry.example.com/nic*"} }
func onlyModes(s *v1alpha1.ModulePolicySpec) {
	s.Parameters = &v1alpha1.ModulePolicyParameters{Only: []string{"mode=*"}}
}
func noBuilds(s *v1alpha1.ModulePolicySpec) { s.Build = v1alpha1.Deny }
func noLoads(s *v1alpha1.ModulePolicySpec)  { s.Load = v1alpha1.Deny }

// policedAttacks are those of people who may write Modules of one namespace, under ModulePolicies.
func policedAttacks() []Attack {
	limits, its := Policy("drover-module-policies"), "an administrator has limited what its Modules load"
	row := func(what string, limit func(*v1alpha1.ModulePolicySpec), says string, change func(*v1beta1.Module)) Attack {
		return Attack{Who: Editor, What: what, Why: its, Answer: limits, Says: says, Try: denied(limit, change)}
	}
	const image, module = "does not allow the image", "does not allow the kernel module"
	return append([]Attack{
		row("load although its namespace may load nothing", noLoads, "load anything here", func(*v1beta1.Module) {}),
		row("load another kernel module than it may", onlyModules, module, func(m *v1beta1.Module) {
			container(m).Modprobe.ModuleName = "nfsd"
		}),
		row("load one whose name only begins like an allowed one, with a hyphen for an underscore", onlyModules, module, func(m *v1beta1.Module) {
			container(m).Modprobe.ModuleName = "ni-c"
		}),
		row("load another one as a dependency", onlyModules, module, func(m *v1beta1.Module) {
			container(m).Modprobe.ModulesLoadingOrder = []string{"nic", "nfsd"}
		}),
		row("remove another one by a mapping's `inTreeModulesToRemove`", onlyModules, module, func(m *v1beta1.Module) {
			container(m).KernelMappings[0].InTreeModulesToRemove = []string{"nic", "ext4"}
		}),
		row("remove another one by the older `inTreeModuleToRemove`", onlyModules, module, func(m *v1beta1.Module) {
			container(m).InTreeModuleToRemove = "ext4"
		}),
		row("load from another registry by a mapping behind one that is allowed", onlyImages, image, func(m *v1beta1.Module) {
			container(m).KernelMappings = []v1beta1.KernelMapping{
				{Literal: "1.0.0", ContainerImage: "registry.example.com/nic:1"}, {Regexp: "^.+$", ContainerImage: "evil.example.com/nic:1"},
			}
		}),
		row("load from another registry by `containerImage` of all mappings", onlyImages, image, func(m *v1beta1.Module) {
			container(m).KernelMappings[0].ContainerImage, container(m).ContainerImage = "", "evil.example.com/nic:1"
		}),
		row("load from a registry whose name goes on where the allowed one ends", func(s *v1alpha1.ModulePolicySpec) {
			s.Images = []string{"registry.example.com/*"}
		}, image, func(m *v1beta1.Module) {
			container(m).KernelMappings[0].ContainerImage = "registry.example.com.evil.example.net/nic:1"
		}),
		row("have another registry's image signed", onlyImages, image, func(m *v1beta1.Module) {
			container(m).Sign = &v1beta1.Sign{KeySecret: local("key"), CertSecret: local("cert"), FilesToSign: []string{"/opt/nic.ko"},
				UnsignedImage: "evil.example.com/nic:1"}
		}),
		row("build an image although its namespace may build none", noBuilds, "allows no image that is built", func(m *v1beta1.Module) {
			container(m).KernelMappings[0].Build = &v1beta1.Build{DockerfileConfigMap: local("dockerfile")}
		}),
		row("give a second parameter behind the quotes of an allowed one", onlyModes, "does not allow the parameter", func(m *v1beta1.Module) {
			container(m).Modprobe.Parameters = []string{`mode="a" debug=1`}
		}),
		row("give a second parameter behind a line break", onlyModes, "denied request", func(m *v1beta1.Module) {
			container(m).Modprobe.Parameters = []string{"mode=a\"\ndebug=1 x=\""}
		}),
		row("give modprobe arguments that load any file", onlyModules, "allows no args", func(m *v1beta1.Module) {
			container(m).Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-d", "/tmp/evil"}}
		}),
		{Who: Editor, What: "change an allowed Module into one that is not", Why: its, Answer: limits, Says: module, Try: changes},
	}, writtenAttacks()...)
}

// writtenAttacks are Modules that no administrator's policy has to forbid.
func writtenAttacks() []Attack {
	modules := Policy("drover-modules")
	plugin := func(path string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) {
			m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "registry.example.com/plugin:1"},
				Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}}}
		}
	}
	operator := Check("module-policies")
	return []Attack{
		{Who: Editor, What: "mount the node's root into a device plugin", Why: "a plugin needs devices, not the node's disk",
			Answer: modules,
			Says:   "hostPath.path", Try: admitted(plugin("/"))},
		{Who: Editor, What: "mount the node's root by `..`", Why: "a plugin needs devices, not the node's disk", Answer: modules,
			Says: "hostPath.path", Try: admitted(plugin("/dev/../etc"))},
		{Who: Editor, What: "sign files outside of the image's modules", Why: "a signature is a kernel's trust", Answer: modules,
			Says: "filesToSign", Try: admitted(func(m *v1beta1.Module) {
				container(m).Sign = &v1beta1.Sign{KeySecret: local("key"), CertSecret: local("cert"), FilesToSign: []string{"/etc/evil.ko"}}
			})},
		{Who: Editor, What: "write something else than a time where a time is asked for", Why: "the operator reads it in each pass",
			Answer: Policy("drover-module-annotations"), Says: "must be a time", Try: admitted(func(m *v1beta1.Module) {
				m.Annotations = map[string]string{v1beta1.RetryAnnotation: "$(id)"}
			})},
		{Who: Editor, What: "load an image that only the node's kernel turns into one of another registry", Why: "the limit is on what is pulled",
			Answer: operator, Says: "does not allow the image evil.example.com/nic:1", Try: func(s *Scene) error {
				s.limit(func(p *v1alpha1.ModulePolicySpec) { p.Images = []string{"registry.example.com/*"} })
				return s.ordered(func(m *v1beta1.Module) {
					m.Name, container(m).KernelMappings[0].ContainerImage = "evil.example.com", "${MOD_NAME}/nic:1"
				})
			}},
		{Who: Editor, What: "load on nodes that a ModulePolicy keeps for others", Why: "only the operator knows which nodes a Module comes to",
			Answer: operator, Says: "lets no Module of namespace", Try: func(s *Scene) error {
				s.limit(func(p *v1alpha1.ModulePolicySpec) {
					p.Load, p.NodeSelector = v1alpha1.Deny, &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{"pool": s.namespace}}
				})
				return s.ordered(func(*v1beta1.Module) {})
			}},
	}
}

// denied is the attempt to create a Module under a ModulePolicy.
func denied(limit func(*v1alpha1.ModulePolicySpec), change func(*v1beta1.Module)) func(*Scene) error {
	return func(s *Scene) error {
		s.limit(limit)
		editor := s.editor()
		return s.soon(func(ctx context.Context) error { return editor.Create(ctx, s.module(change), client.DryRunAll) })
	}
}

// changes updates a Module that is allowed.
func changes(s *Scene) error {
	s.limit(onlyModules)
	editor, m := s.editor(), s.module()
	s.must(editor.Create(s.Context(), m))
	change := merge(`{"spec":{"moduleLoader":{"container":{"modprobe":{"moduleName":"nfsd"}}}}}`)
	return s.soon(func(ctx context.Context) error { return editor.Patch(ctx, m.DeepCopy(), change, client.DryRunAll) })
}

// admitted is the attempt to create a Module.
func admitted(change func(*v1beta1.Module)) func(*Scene) error {
	return func(s *Scene) error { return s.editor().Create(s.Context(), s.module(change)) }
}

// ordered is the attempt to have a Module brought to a node, past admission.
func (s *Scene) ordered(change func(*v1beta1.Module)) error {
	s.Helper()
	s.node(kernelVersion)
	return s.decided(s.module(change), v1beta1.ReasonPolicyDenied)
}

// decided creates a Module. It ends as soon as the operator brings it to a node, or says by a
// condition with the reason why it does not.
func (s *Scene) decided(m *v1beta1.Module, reason string) (refusal error) {
	s.Helper()
	s.must(s.editor().Create(s.Context(), m))
	s.await("the operator's decision", func(ctx context.Context) (bool, error) {
		var carriers corev1.PodList
		if err := s.admin.List(ctx, &carriers, client.InNamespace(s.namespace)); err != nil || len(carriers.Items) > 0 {
			return true, err
		}
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err
		}
		refusal = said(m, reason)
		return refusal != nil, nil
	})
	return refusal
}

// said are the words of the first condition with a reason, or nil.
func said(m *v1beta1.Module, reason string) error {
	for _, c := range m.Status.Conditions {
		if c.Reason == reason && c.Status != metav1.ConditionTrue {
			return stopped("%s: %s", c.Reason, strings.TrimSpace(c.Message))
		}
	}
	return nil
}

func local(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }

// taintAttacks name taints of others in a Module.
func taintAttacks() []Attack {
	return []Attack{
		{Who: Editor, What: "have an administrator's taint taken off every node, as a startup taint", Why: "it would get pods",
			Answer: Check("startup-taints"), Says: "StartupTaintDenied", Try: takesTaint},
		{Who: Editor, What: "keep another vendor's startup taint on nodes, by a Module that never gets ready",
			Why: "no pod would come to those nodes again", Answer: Check("startup-taints"), Says: "the taint went", Try: keepsTaint},
	}
}

// takesTaint ends as soon as the taint is gone, or the Module says why it stays.
func takesTaint(s *Scene) error {
	const key = "security.example.com/quarantine"
	node := s.node(kernelVersion, tainted(key))
	m := s.module(waitsFor(key), func(m *v1beta1.Module) { m.Spec.ModuleLoader, m.Spec.Selector = nil, map[string]string{} })
	s.must(s.editor().Create(s.Context(), m))
	var refusal error
	s.await("the operator's decision about the taint", func(ctx context.Context) (bool, error) {
		if has, err := s.hasTaint(ctx, node, key); err != nil || !has {
			return true, err
		}
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err
		}
		refusal = said(m, "StartupTaintDenied")
		return refusal != nil, nil
	})
	return refusal
}

// keepsTaint has a vendor's Module, in a namespace of its own, whose taint goes at once: it has
// nothing to wait for.
func keepsTaint(s *Scene) error {
	vendor := s.env.Namespace(s)
	key := vendor + ".startup.drover.dev/nic"
	hostage := s.module(waitsFor(key))
	s.must(s.editor().Create(s.Context(), hostage))
	node := s.node(kernelVersion, tainted(key))
	s.create(s.module(waitsFor(key), func(m *v1beta1.Module) { m.Namespace, m.Spec.ModuleLoader = vendor, nil }))
	err := wait.PollUntilContextTimeout(s.Context(), pace, patience, true, func(ctx context.Context) (bool, error) {
		has, err := s.hasTaint(ctx, node, key)
		return !has, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	s.must(err)
	return stopped("the taint went when the vendor's own Module was ready")
}

func waitsFor(key string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		m.Spec.StartupTaint, m.Spec.Tolerations = key, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
}

func tainted(key string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoExecute}} }
}

func (s *Scene) hasTaint(ctx context.Context, name, key string) (bool, error) {
	node := &corev1.Node{}
	if err := s.admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return false, err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == key {
			return true, nil
		}
	}
	return false, nil
}
