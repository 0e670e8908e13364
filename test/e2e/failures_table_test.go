// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// failures are the reasons that hollow nodes can really produce. What takes a real kernel is in
// test/vm/e2e.
func failures() map[string]failure {
	all := map[string]failure{}
	for _, some := range []map[string]failure{selectionFailures(), deliveryFailures(), loadFailures(), lifeFailures(), nodeFailures()} {
		maps.Copy(all, some)
	}
	return all
}

// creating makes the Module on the node, changed.
func creating(changes ...func(*v1beta1.Module)) func(*scenario, string) {
	return func(s *scenario, node string) {
		s.create(append([]func(*v1beta1.Module){s.on(node)}, changes...)...)
	}
}

// cooked makes the Module on the node, of images with something wrong.
func cooked(recipe, detail string, changes ...func(*v1beta1.Module)) func(*scenario, string) {
	return func(s *scenario, node string) {
		s.recipe(recipe, detail)
		creating(changes...)(s, node)
	}
}

// faulty makes the Module on the node, whose kernel answers with an error and says this.
func faulty(fault string, args ...string) func(*scenario, string) {
	return func(s *scenario, node string) {
		s.fault(node, fault, args...)
		creating()(s, node)
	}
}

// loaded has the Module live on the node.
func loaded(changes ...func(*v1beta1.Module)) func(*scenario, string) *scenario {
	return func(s *scenario, node string) *scenario {
		s.live(node, changes...)
		return s
	}
}

func withFirmware(m *v1beta1.Module) {
	m.Spec.ModuleLoader.Container.Modprobe.FirmwarePath = "/firmware"
}

func selectionFailures() map[string]failure {
	return map[string]failure{
		v1beta1.ReasonNoNodes: {
			breaks: func(s *scenario, _ string) {
				s.create(func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{s.selector(): "nowhere"} })
			},
		},
		v1beta1.ReasonUnsupportedNode: {
			words: []string{"runs windows", "e2e-fails-unsupportednode-win"},
			given: func(s *scenario, _ string) *scenario {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
					Name: s.key.Namespace + "-win", Labels: map[string]string{s.selector(): "win", corev1.LabelOSStable: "windows"},
				}}
				s.must(shared.Admin.Create(s.Context(), node))
				s.Cleanup(func() { s.must(shared.Admin.Delete(context.WithoutCancel(s.Context()), node)) })
				return s
			},
			breaks: func(s *scenario, _ string) {
				s.create(func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{s.selector(): "win"} })
			},
		},
		v1beta1.ReasonNoKernelMapping: {
			condition: v1beta1.ConditionKernelsCovered, words: []string{kernelEven, "hollow-0"},
			breaks: creating(func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = `^5\.` }),
		},
		v1beta1.ReasonPaused: {
			breaks: creating(func(m *v1beta1.Module) { m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} }),
		},
	}
}

func deliveryFailures() map[string]failure {
	return map[string]failure{
		v1beta1.ReasonImageNotFound:          {breaks: cooked("missing", ""), words: []string{"hollow-0", "registry.example.com"}},
		v1beta1.ReasonPullUnauthorized:       {breaks: cooked("unauthorized", ""), words: []string{"hollow-0", "registry.example.com"}},
		v1beta1.ReasonAgentImageUnauthorized: {breaks: cooked("agent-unauthorized", ""), words: []string{"hollow-0", "drover-agent"}},
		v1beta1.ReasonPullFailed:             {breaks: cooked("unreachable", ""), words: []string{"hollow-0", "registry.example.com"}},
		v1beta1.ReasonDeliveryRefused: {
			words: []string{"hollow-0", "exceeded quota"},
			given: func(s *scenario, _ string) *scenario {
				quota := &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "none"},
					Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
				}
				s.must(shared.Admin.Create(s.Context(), quota))
				s.eventually("the quota counts", func(ctx context.Context) error {
					err := shared.Admin.Get(ctx, client.ObjectKeyFromObject(quota), quota)
					if err == nil && len(quota.Status.Hard) == 0 {
						err = errors.New("no status yet")
					}
					return err
				})
				return s
			},
			breaks: creating(),
		},
		v1beta1.ReasonImageUnreadable: {breaks: cooked("empty", ""), state: v1beta1.AttemptFailed, words: []string{"lib/modules"}},
		v1beta1.ReasonImageTooLarge:   {breaks: cooked("deep", "", withFirmware), state: v1beta1.AttemptFailed, words: []string{"nests deeper"}},
		v1beta1.ReasonMissingDependency: {
			breaks: cooked("depends", "e2e_absent"), state: v1beta1.AttemptFailed, words: []string{"e2e_absent"},
		},
	}
}

func loadFailures() map[string]failure {
	return map[string]failure{
		v1beta1.ReasonVermagicMismatch: {
			breaks: cooked("vermagic", "5.4.0-other"), state: v1beta1.AttemptFailed, kernel: "version magic '5.4.0-other",
			words: []string{"built for another kernel"},
		},
		v1beta1.ReasonUnknownSymbol: {
			breaks: faulty("load-enoent", "log", "e2e: Unknown symbol e2e_absent (err -2)"), state: v1beta1.AttemptFailed,
			kernel: "Unknown symbol e2e_absent",
		},
		v1beta1.ReasonDependencyConflict: {
			given: func(s *scenario, node string) *scenario {
				s.does(node, "insmod", "module", s.kernelModule+"_bus")
				s.finally(node, "rmmod", "module", s.kernelModule+"_bus")
				s.fault(node, "load-einval", "log", "e2e: disagrees about version of symbol e2e_bus")
				return s
			},
			breaks: creating(func(m *v1beta1.Module) {
				modprobe := &m.Spec.ModuleLoader.Container.Modprobe
				modprobe.ModulesLoadingOrder = []string{modprobe.ModuleName, modprobe.ModuleName + "_bus"}
			}),
			state: v1beta1.AttemptFailed, kernel: "disagrees about version of symbol e2e_bus", words: []string{"_bus, of which build"},
		},
		v1beta1.ReasonInvalidParameter: {
			breaks: faulty("load-einval", "log", "e2e: `x' invalid for parameter `debug'"), state: v1beta1.AttemptFailed,
			kernel: "invalid for parameter `debug'",
		},
		v1beta1.ReasonNoSuchDevice: {
			breaks: faulty("load-enodev", "log", "e2e: no supported card found"), state: v1beta1.AttemptFailed, kernel: "no supported card found",
		},
		v1beta1.ReasonMissingFirmware: {
			breaks: faulty("load-enoent", "log", "e2e 0000:01:00.0: Direct firmware load for e2e/card.bin failed with error -2"),
			state:  v1beta1.AttemptFailed, kernel: "e2e/card.bin",
		},
		v1beta1.ReasonLoadPin: {
			breaks: faulty("load-eperm", "log", `LoadPin: kernel-module denied obj="/e2e.ko" pid=1 cmdline="drover-kcall"`),
			state:  v1beta1.AttemptFailed, kernel: "kernel-module denied",
		},
		v1beta1.ReasonSELinux: {
			breaks: faulty("load-eacces", "log", "SELinux is enforcing"), state: v1beta1.AttemptFailed, kernel: "SELinux is enforcing",
		},
		v1beta1.ReasonLoadFailed: {
			breaks: faulty("load-eio", "log", "e2e: firmware handshake failed"), state: v1beta1.AttemptFailed, kernel: "firmware handshake failed",
		},
		v1beta1.ReasonFirmwareConflict: {
			given: func(s *scenario, node string) *scenario {
				s.recipe("firmware", "shared.bin")
				s.live(node, withFirmware)
				return s.second("other", s.kernelModule+"_other")
			},
			breaks: creating(withFirmware), state: v1beta1.AttemptFailed, words: []string{"shared.bin"},
		},
		v1beta1.ReasonModuleConflict: {
			given: func(s *scenario, node string) *scenario {
				s.live(node)
				other := s.second("other", s.kernelModule)
				s.Cleanup(func() { s.must(shared.Admin.Delete(context.WithoutCancel(s.Context()), s.module())) }) // or the other could never be alone
				return other
			},
			breaks: creating(), state: v1beta1.AttemptFailed, words: []string{"e2e-fails-moduleconflict/mod"},
		},
		v1beta1.ReasonAlreadyLoadedForeign: {
			given: func(s *scenario, node string) *scenario {
				s.does(node, "insmod", "module", s.kernelModule)
				s.finally(node, "rmmod", "module", s.kernelModule)
				return s
			},
			breaks: creating(), state: v1beta1.AttemptFailed, words: []string{"inTreeModulesToRemove"},
		},
	}
}

// lifeFailures befall what was live.
func lifeFailures() map[string]failure {
	next := func(s *scenario, _ string) { s.change(image("2")) }
	return map[string]failure{
		v1beta1.ReasonInUse: {
			given: func(s *scenario, node string) *scenario {
				s.live(node)
				s.does(node, "hold", "module", s.kernelModule)
				s.finally(node, "unhold", "module", s.kernelModule)
				return s
			},
			breaks: next, state: v1beta1.AttemptInUse,
		},
		v1beta1.ReasonRebootRequired: {
			given: func(s *scenario, node string) *scenario {
				s.live(node, func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.UnloadPolicy = v1beta1.UnloadOnReboot })
				s.Cleanup(func() { // or it could not leave
					ctx := context.WithoutCancel(s.Context())
					m := &v1beta1.Module{}
					s.must(shared.Admin.Get(ctx, s.key, m))
					m.Spec.ModuleLoader.Container.UnloadPolicy = v1beta1.UnloadWait
					s.must(shared.Admin.Update(ctx, m))
					s.eventuallyIn(ctx, "the change is made after all", s.ready)
				})
				return s
			},
			breaks: next, state: v1beta1.AttemptWaiting,
		},
		v1beta1.ReasonRolledBack: {
			given: loaded(),
			breaks: func(s *scenario, node string) {
				s.fault(node, "load-enodev", "times", "1", "log", "e2e: this build knows no card of yours")
				next(s, node)
			},
			state: v1beta1.AttemptFailed, kernel: "knows no card of yours", words: []string{"NoSuchDevice", "previous build"},
		},
		v1beta1.ReasonUnloadFailed: {
			given: loaded(),
			breaks: func(s *scenario, node string) {
				s.fault(node, "unload-eio", "log", "e2e: the card does not answer")
				s.must(shared.Admin.Delete(s.Context(), s.module()))
			},
			state: v1beta1.AttemptFailed, kernel: "the card does not answer",
		},
		v1beta1.ReasonDrifted: {
			given: loaded(),
			breaks: func(s *scenario, node string) {
				// Once is nobody's concern. While the repair goes on, it would be one that failed.
				s.does(node, "rmmod", "module", s.kernelModule)
				s.eventually("it is repaired", func(ctx context.Context) error {
					live, err := s.liveOn(ctx, node)
					if err == nil && (live.Observed == nil || live.Observed.Repairs == 0) {
						err = errors.New("no repair is reported")
					}
					return err
				})
				s.does(node, "rmmod", "module", s.kernelModule)
			},
			state: v1beta1.AttemptWaiting, words: []string{"hollow-0"},
		},
	}
}

// nodeFailures spoil the node.
func nodeFailures() map[string]failure {
	return map[string]failure{
		v1beta1.ReasonSignatureRejected: {
			alone: "hollow-2", given: secured("enforced"), breaks: creating(),
			state: v1beta1.AttemptFailed, kernel: "Loading of unsigned module is rejected",
		},
		v1beta1.ReasonLockedDown: {
			alone: "hollow-3", given: secured("lockdown"), breaks: creating(),
			state: v1beta1.AttemptFailed, kernel: "unsigned module loading is restricted",
		},
		v1beta1.ReasonModulesDisabled: {
			alone: "hollow-4",
			given: func(s *scenario, node string) *scenario {
				s.does(node, "disable-modules")
				s.finally(node, "reboot")
				return s
			},
			breaks: creating(), state: v1beta1.AttemptFailed, words: []string{"kernel.modules_disabled"},
		},
		v1beta1.ReasonNodeNotReady: {
			alone: "hollow-4",
			given: func(s *scenario, node string) *scenario {
				s.does(node, "unready")
				s.finally(node, "ready")
				return s
			},
			breaks: creating(), words: []string{"hollow-4"},
		},
		v1beta1.ReasonTimeout: {
			alone: "hollow-5",
			breaks: func(s *scenario, node string) {
				s.finally(node, "reboot")
				faulty("load-slow", "delay", (100*callDeadline).String())(s, node)
			},
			state: v1beta1.AttemptFailed, words: []string{"hollow-5", "did not return in time"},
		},
		v1beta1.ReasonQuarantined: {
			alone: "hollow-5",
			given: func(s *scenario, node string) *scenario {
				faulty("load-oops")(s, node)
				s.eventually("the load has died", func(ctx context.Context) error {
					return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonLoadFailed)
				})
				return s
			},
			breaks: func(s *scenario, node string) { s.does(node, "reboot") },
			state:  v1beta1.AttemptFailed, words: []string{"hollow-5"},
		},
	}
}

// secured has the node's kernel demand signatures.
func secured(how string) func(*scenario, string) *scenario {
	return func(s *scenario, node string) *scenario {
		s.does(node, "secure", how, "")
		s.finally(node, "secure")
		return s
	}
}
