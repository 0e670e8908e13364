// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	label      = "drover.dev/alerts"
	moduleName = "mod"
	patience   = 2 * time.Minute
)

// corner is one fault's own part of the fleet: nodes, a namespace, a Module and a kernel module.
type corner struct {
	*scene
	alert, namespace, node, other, kernelModule string
}

// fault is how a class of faults is made.
type fault struct {
	// given is what is well before; breaks is when time begins.
	given, breaks func(context.Context, *corner) error
	// mend is done before the Module is deleted, beside what is done for all; leave is done after.
	mend, leave func(context.Context, *corner) error
}

type change = func(*v1beta1.Module)

// module is on the corner's node, with an image for each kernel.
func (c *corner) module(name string, changes ...change) *v1beta1.Module {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	m.Spec.Selector = map[string]string{label: c.namespace}
	m.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{}
	container := &m.Spec.ModuleLoader.Container
	container.Modprobe.ModuleName = c.kernelModule
	container.KernelMappings = []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: c.image("1")}}
	for _, change := range changes {
		change(m)
	}
	return m
}

func (c *corner) image(version string) string {
	return "registry.example.com/" + c.namespace + "/mod:" + version + "-${KERNEL_FULL_VERSION}"
}

func (c *corner) does(ctx context.Context, verb string, args ...string) error {
	return c.on(ctx, c.node, verb, args...)
}

func (c *corner) on(ctx context.Context, node, verb string, args ...string) error {
	q := url.Values{"node": {node}}
	for i := 0; i < len(args); i += 2 {
		q.Set(args[i], args[i+1])
	}
	return c.fleet.Debug(ctx, "/"+verb+"?"+q.Encode())
}

func creates(changes ...change) func(context.Context, *corner) error {
	return func(ctx context.Context, c *corner) error { return c.create(ctx, c.module(moduleName, changes...)) }
}

func (c *corner) create(ctx context.Context, o client.Object) error {
	if err := c.fleet.Admin.Create(ctx, o); err != nil {
		return fmt.Errorf("create %T: %w", o, err)
	}
	return nil
}

// cooked creates the Module, of images with something wrong.
func cooked(recipe, detail string) fault {
	return fault{breaks: func(ctx context.Context, c *corner) error {
		if err := c.does(ctx, "recipe", "pattern", "^registry.example.com/"+c.namespace+"/", "recipe", recipe, "detail", detail); err != nil {
			return err
		}
		return creates()(ctx, c)
	}}
}

// faulty creates the Module, whose load the kernel answers with an error.
func faulty(what string, args ...string) func(context.Context, *corner) error {
	return func(ctx context.Context, c *corner) error {
		if err := c.does(ctx, "fault", append([]string{"fault", what, "module", c.kernelModule}, args...)...); err != nil {
			return err
		}
		return creates()(ctx, c)
	}
}

// live has the Module ready.
func live(changes ...change) func(context.Context, *corner) error {
	return func(ctx context.Context, c *corner) error {
		if err := creates(changes...)(ctx, c); err != nil {
			return err
		}
		return c.ready(ctx)
	}
}

func (c *corner) ready(ctx context.Context) error {
	return c.says(ctx, v1beta1.ConditionReady, v1beta1.ReasonReady)
}

// says waits for a reason of a condition of the present generation.
func (c *corner) says(ctx context.Context, kind, reason string) error {
	m := &v1beta1.Module{}
	err := wait.PollUntilContextTimeout(ctx, pace, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.fleet.Admin.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: moduleName}, m); err != nil {
			return false, fmt.Errorf("get the Module: %w", err)
		}
		found := meta.FindStatusCondition(m.Status.Conditions, kind)
		return found != nil && found.Reason == reason && found.ObservedGeneration == m.Generation, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %s never became %s: %w; it says %+v", c.namespace, kind, reason, err, m.Status.Conditions)
	}
	return nil
}

// loaded waits until the node says so of what it has to load.
func loaded(ctx context.Context, c *corner) error {
	return c.says(ctx, v1beta1.ConditionLoaded, v1beta1.ReasonLoaded)
}

// repairs is how often the node says that it has repaired the module.
func (c *corner) repairs(ctx context.Context) (int32, error) {
	config := &v1beta1.NodeModulesConfig{}
	if err := c.fleet.Admin.Get(ctx, types.NamespacedName{Name: c.node}, config); err != nil {
		return 0, fmt.Errorf("get the node's report: %w", err)
	}
	for i := range config.Status.Modules {
		if m := &config.Status.Modules[i]; m.Namespace == c.namespace && m.Observed != nil {
			return m.Observed.Repairs, nil
		}
	}
	return 0, nil
}

// next is the next version of the image.
func next(ctx context.Context, c *corner) error { return c.change(ctx, "2") }

func (c *corner) change(ctx context.Context, version string) error {
	const path = "/spec/moduleLoader/container/kernelMappings/0/containerImage"
	patch := fmt.Sprintf(`[{"op":"replace","path":%q,"value":%q}]`, path, c.image(version))
	if err := c.fleet.Admin.Patch(ctx, c.module(moduleName), client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		return fmt.Errorf("change the Module: %w", err)
	}
	return nil
}

func verb(name string, args ...string) func(context.Context, *corner) error {
	return func(ctx context.Context, c *corner) error { return c.does(ctx, name, args...) }
}

// withModule is verb for the corner's kernel module.
func withModule(name string) func(context.Context, *corner) error {
	return func(ctx context.Context, c *corner) error { return c.does(ctx, name, "module", c.kernelModule) }
}

func both(first, second func(context.Context, *corner) error) func(context.Context, *corner) error {
	return func(ctx context.Context, c *corner) error {
		if err := first(ctx, c); err != nil {
			return err
		}
		return second(ctx, c)
	}
}

// imageFaults are on the way of an image to a node.
func imageFaults() map[string]fault {
	return map[string]fault{
		"DroverKernelUncovered": {breaks: creates(func(m *v1beta1.Module) {
			m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = `^5\.`
		})},
		"DroverBuildFailed": {breaks: creates(func(m *v1beta1.Module) {
			m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "missing"}}
		})},
		"DroverImageMissing":     cooked("missing", ""),
		"DroverPullUnauthorized": cooked("unauthorized", ""),
		"DroverPullFailed":       cooked("unreachable", ""),
		"DroverDeliveryRefused":  {given: quota, breaks: creates()},
		"DroverImageUnusable":    cooked("empty", ""),
		"DroverModuleDoesNotFit": cooked("vermagic", "5.4.0-other"),
	}
}

// quota lets no pod into the namespace.
func quota(ctx context.Context, c *corner) error {
	q := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	if err := c.create(ctx, q); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, pace, patience, true, func(ctx context.Context) (bool, error) {
		err := c.fleet.Admin.Get(ctx, client.ObjectKeyFromObject(q), q)
		return err == nil && len(q.Status.Hard) > 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the quota: %w", err)
	}
	return nil
}

// loadFaults are what the kernel says.
func loadFaults() map[string]fault {
	return map[string]fault{
		"DroverNotTrusted":  {given: verb("secure", "enforced", ""), breaks: creates(), mend: verb("secure")},
		"DroverLoadRefused": {breaks: faulty("load-enodev", "log", "alerts: no supported card found")},
		"DroverConflict":    {given: withModule("insmod"), breaks: creates(), mend: withModule("rmmod")},
		"DroverUnsupported": {breaks: creates(func(m *v1beta1.Module) {
			m.Spec.ModuleLoader.Container.Modprobe.ModprobedDir = "/etc/modprobe.d"
		})},
		"DroverQuarantined": {
			given: func(ctx context.Context, c *corner) error {
				if err := faulty("load-oops")(ctx, c); err != nil {
					return err
				}
				return c.says(ctx, v1beta1.ConditionLoaded, v1beta1.ReasonLoadFailed)
			},
			breaks: verb("reboot"),
		},
		"DroverKernelCallStuck": {breaks: faulty("load-slow", "delay", "10m"), mend: verb("reboot")},
		"DroverNotUsable": {breaks: creates(func(m *v1beta1.Module) {
			m.Spec.ModuleLoader.Container.ReadyWhen = []v1beta1.ReadyCheck{{DeviceNode: "/dev/alerts0"}}
		})},
		"DroverDrifted": {given: live(), breaks: func(ctx context.Context, c *corner) error {
			err := wait.PollUntilContextTimeout(ctx, pace, patience, true, func(ctx context.Context) (bool, error) {
				_ = withModule("rmmod")(ctx, c) // it is not there while the agent has not repaired it
				repairs, err := c.repairs(ctx)
				return repairs > 1, err // once is not told
			})
			if err != nil {
				return fmt.Errorf("the module was not repaired twice: %w", err)
			}
			return nil
		}},
	}
}

// changeFaults befall what was live.
func changeFaults() map[string]fault {
	onReboot := func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.UnloadPolicy = v1beta1.UnloadOnReboot }
	return map[string]fault{
		"DroverOldBuildStays": {given: both(live(), withModule("hold")), breaks: next, mend: withModule("unhold")},
		// To unload it takes a reboot, too.
		"DroverRebootRequired": {
			given: live(onReboot), breaks: next, mend: both(verb("reboot"), loaded),
			leave: func(ctx context.Context, c *corner) error {
				if err := c.says(ctx, v1beta1.ConditionLoaded, v1beta1.ReasonRebootRequired); err != nil {
					return err
				}
				return c.does(ctx, "reboot")
			},
		},
		"DroverRolledBack": {given: live(), breaks: func(ctx context.Context, c *corner) error {
			err := c.does(ctx, "fault", "fault", "load-enodev", "module", c.kernelModule, "times", "1", "log", "alerts: no card of yours")
			if err != nil {
				return err
			}
			return next(ctx, c)
		}},
		"DroverRolloutStalled": {
			given: live(func(m *v1beta1.Module) {
				m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
			}),
			breaks: func(ctx context.Context, c *corner) error {
				for _, node := range []string{c.node, c.other} {
					if err := c.on(ctx, node, "fault", "fault", "load-enodev", "module", c.kernelModule, "log", "alerts: no card"); err != nil {
						return err
					}
				}
				return next(ctx, c)
			},
		},
		"DroverDrainBlocked": {
			given: both(live(func(m *v1beta1.Module) { m.Spec.Rollout = &v1beta1.RolloutSpec{Drain: v1beta1.DrainNode} }), bare), breaks: next,
			mend: func(ctx context.Context, c *corner) error {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "bare"}}
				return client.IgnoreNotFound(c.fleet.Admin.Delete(ctx, pod, client.GracePeriodSeconds(0)))
			},
		},
	}
}

// bare is a pod that nothing would make again, so that no drain takes it unasked.
func bare(ctx context.Context, c *corner) error {
	return c.create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "bare"},
		Spec: corev1.PodSpec{
			NodeName: c.node, Containers: []corev1.Container{{Name: "bare", Image: "registry.example.com/bare:1"}},
			AutomountServiceAccountToken: ptr.To(false),
		},
	})
}

func kernelModule(namespace string) string { return strings.ReplaceAll(namespace, "-", "_") }
