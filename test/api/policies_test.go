// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

// carrier is what the operator really makes.
func carrier(t *testing.T, namespace string, mode delivery.Mode, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	m := valid()
	m.Namespace, m.UID = namespace, "4a1f6a5e-0000-4000-8000-000000000001"
	pod := delivery.Carrier(&delivery.Request{
		Module: m,
		Config: &v1beta1.ModuleConfig{
			KernelVersion: "6.1.0", ContainerImage: "example.com/nic:6.1.0",
			Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt"},
		},
		ID: "0123456789abcdef", Node: "node-1", Mode: mode, AgentImage: env.AgentImage,
	})
	for _, f := range change {
		f(pod)
	}
	return pod
}

// editor is somebody with the stock role edit in a namespace that enforces Pod Security
// "restricted".
func editor(t *testing.T, e *env.Env) (*rest.Config, string) {
	t.Helper()
	admin, namespace := e.Admin(t), e.ModuleNamespace(t)
	patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := admin.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	user := "editor-of-" + namespace
	// Without a controller manager nobody aggregates edit, so its rules about pods stand here.
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edit"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Verbs: []string{"*"},
		Resources: []string{"pods", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/ephemeralcontainers"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return e.UserConfig(t, user), namespace
}

func TestOperatorMakesCarriersOnly(t *testing.T) {
	e := env.Get(t)
	_, namespace := editor(t, e)
	operator := e.Client(t, e.Config(t, env.Operator))
	first := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
	}
	cases := map[string]struct {
		mode  delivery.Mode
		given func(*corev1.Pod)
		then  []string
	}{
		"with an image volume":   {mode: delivery.ModeImageVolume},
		"with an init container": {mode: delivery.ModeInitContainer},
		"another pod":            {given: func(p *corev1.Pod) { p.Name = "backdoor" }, then: []string{"metadata.name"}},
		"another pod, generated": {given: func(p *corev1.Pod) { p.Name, p.GenerateName = "", "backdoor-" }, then: []string{"metadata.name"}},
		"host network":           {given: func(p *corev1.Pod) { p.Spec.HostNetwork = true }, then: []string{"namespaces with the host"}},
		"host PIDs":              {given: func(p *corev1.Pod) { p.Spec.HostPID = true }, then: []string{"namespaces with the host"}},
		"a token": {given: func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil },
			then: []string{"automountServiceAccountToken"}},
		"no node":  {given: func(p *corev1.Pod) { p.Spec.NodeName = "" }, then: []string{"spec.nodeName"}},
		"no label": {given: func(p *corev1.Pod) { p.Labels = nil }, then: []string{"metadata.labels"}},
		"another image": {given: first(func(c *corev1.Container) { c.Image = "evil:1" }),
			then: []string{"a carrier runs " + env.AgentImage}},
		"another command": {given: first(func(c *corev1.Container) { c.Command = []string{"sh"} }),
			then: []string{"runs the agent image's export"}},
		"another subcommand": {given: first(func(c *corev1.Container) { c.Args = []string{"run"} }),
			then: []string{"runs the agent image's export"}},
		"privileged": {given: first(func(c *corev1.Container) {
			c.SecurityContext.Privileged, c.SecurityContext.AllowPrivilegeEscalation = ptr.To(true), nil
		}), then: []string{"capabilities"}},
		"a capability": {given: first(func(c *corev1.Container) { c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"} }),
			then: []string{"capabilities"}},
		"a writable root": {given: first(func(c *corev1.Container) { c.SecurityContext.ReadOnlyRootFilesystem = nil }),
			then: []string{"read-only root"}},
		"root": {given: first(func(c *corev1.Container) { c.SecurityContext.RunAsUser = ptr.To[int64](0) }),
			then: []string{"does not run as root"}},
		"a hook": {given: first(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{} }), then: []string{"hooks"}},
		"environment from a Secret": {given: first(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *local("s")}}}
		}), then: []string{"environment"}},
		"a second container": {
			given: func(p *corev1.Pod) {
				second := p.Spec.Containers[0]
				second.Name = "second"
				p.Spec.Containers = append(p.Spec.Containers, second)
			},
			then: []string{"one container"},
		},
		"a host path": {
			given: func(p *corev1.Pod) {
				p.Spec.Volumes = append(p.Spec.Volumes,
					corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
			},
			then: []string{"spec.volumes"},
		},
		"a Secret": {
			given: func(p *corev1.Pod) {
				p.Spec.Volumes = append(p.Spec.Volumes,
					corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}})
			},
			then: []string{"spec.volumes"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.mode == "" {
				tc.mode = delivery.ModeImageVolume
			}
			pod := carrier(t, namespace, tc.mode)
			if tc.given != nil {
				tc.given(pod)
			}
			if len(tc.then) > 0 {
				// What is refused may well be refused by Pod Security first; the policy must hold anywhere.
				pod.Namespace = e.ModuleNamespace(t)
			}
			check(t, operator.Create(t.Context(), pod, client.DryRunAll), tc.then...)
		})
	}
}

func TestCarriersAreSealed(t *testing.T) {
	e := env.Get(t)
	config, namespace := editor(t, e)
	admin, user := e.Admin(t), e.Client(t, config)
	sealed := carrier(t, namespace, delivery.ModeImageVolume)
	if err := e.Client(t, e.Config(t, env.Operator)).Create(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}

	spoof := carrier(t, namespace, delivery.ModeImageVolume)
	spoof.Name += "0"
	check(t, user.Create(t.Context(), spoof), "made by Drover's operator only")
	spoof.Name, spoof.GenerateName = "", v1beta1.CarrierPrefix
	check(t, user.Create(t.Context(), spoof), "made by Drover's operator only")
	check(t, admin.Create(t.Context(), spoof), "made by Drover's operator only")

	patch := func(text string) client.Patch { return client.RawPatch(types.StrategicMergePatchType, []byte(text)) }
	image := patch(`{"spec":{"containers":[{"name":"export","image":"evil:1"}]}}`)
	label := patch(`{"metadata":{"labels":{"a":"b"}}}`)
	for who, c := range map[string]client.Client{"user": user, "admin": admin, "operator": e.Client(t, e.Config(t, env.Operator))} {
		for what, p := range map[string]client.Patch{"image": image, "label": label} {
			if err := c.Patch(t.Context(), sealed.DeepCopy(), p); err == nil {
				t.Errorf("%s could patch the %s", who, what)
			} else if who != "operator" { // whom another policy may refuse first
				check(t, err, "carriers are sealed")
			}
		}
	}
	ephemeral := patch(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"evil:1","securityContext":{
		"allowPrivilegeEscalation":false,"runAsNonRoot":true,"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}}]}}`)
	check(t, admin.SubResource("ephemeralcontainers").Patch(t.Context(), sealed.DeepCopy(), ephemeral), "carriers are sealed")
	check(t, user.SubResource("ephemeralcontainers").Patch(t.Context(), sealed.DeepCopy(), ephemeral), "carriers are sealed")

	for who, config := range map[string]*rest.Config{"user": config, "admin": e.AdminConfig()} {
		set, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range []string{"exec", "attach", "portforward", "proxy"} {
			err := set.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(sealed.Name).
				SubResource(sub).Param("command", "id").Param("stdout", "true").Param("container", "export").Do(t.Context()).Error()
			t.Run(who+" "+sub, func(t *testing.T) { check(t, err, "no exec, attach, port-forward or proxy") })
		}
	}

	// What has to work: the kubelet's status, and anybody's right to delete.
	sealed.Status.Phase = corev1.PodRunning
	check(t, admin.Status().Update(t.Context(), sealed))
	check(t, user.Delete(t.Context(), sealed))
}

func TestClusterControllersMayChangeMetadataOfCarriers(t *testing.T) {
	e := env.Get(t)
	namespace := e.ModuleNamespace(t)
	sealed := carrier(t, namespace, delivery.ModeImageVolume)
	if err := e.Client(t, e.Config(t, env.Operator)).Create(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	controller := e.Client(t, e.UserConfig(t, "system:serviceaccount:kube-system:generic-garbage-collector",
		"system:masters", "system:serviceaccounts", "system:serviceaccounts:kube-system"))
	patch := func(text string) client.Patch { return client.RawPatch(types.StrategicMergePatchType, []byte(text)) }
	check(t, controller.Patch(t.Context(), sealed.DeepCopy(), patch(`{"metadata":{"finalizers":["foregroundDeletion"]}}`)))
	check(t, controller.Patch(t.Context(), sealed.DeepCopy(), patch(`{"spec":{"containers":[{"name":"export","image":"evil:1"}]}}`)),
		"carriers are sealed")
}

func TestOtherPodsAreNobodysConcern(t *testing.T) {
	e := env.Get(t)
	config, namespace := editor(t, e)
	pod := carrier(t, namespace, delivery.ModeInitContainer)
	pod.Name, pod.Labels = "mine", nil
	user := e.Client(t, config)
	check(t, user.Create(t.Context(), pod))
	pod.Labels = map[string]string{"a": "b"}
	check(t, user.Update(t.Context(), pod))
}

func TestAgentsWriteTheStatusOfTheirNode(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	names := []string{"status-a", "status-b"}
	for _, name := range names {
		for _, object := range []client.Object{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}},
		} {
			if err := admin.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	status := func(c client.Client, name string) error {
		patch := []byte(`{"status":{"artifacts":[{"id":"a","digest":"b"}]}}`)
		return c.Status().Patch(t.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}},
			client.RawPatch(types.MergePatchType, patch))
	}
	agent := e.Client(t, e.AgentConfig(t, names[0]))
	check(t, status(agent, names[0]))
	check(t, status(agent, names[1]), `the agent on node "status-a" may not write the status of node "status-b"`)
	check(t, status(e.Client(t, e.Config(t, env.Agent)), names[0]), `the agent on node "" may not`)
	check(t, status(e.Client(t, e.Config(t, env.Operator)), names[0]), "forbidden")
	// KMM writes as its own ServiceAccount, by its own role: also where an uninstall left this policy.
	check(t, status(e.Client(t, e.UserConfig(t, "system:serviceaccount:kmm-operator-system:kmm-operator-controller",
		"system:masters", "system:serviceaccounts")), names[0]))

	spec := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"modules":[]}}`))
	check(t, agent.Patch(t.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: names[0]}}, spec), "forbidden")
	e.AssertNoMasters(t)
}

func TestNamespacesWithModulesStay(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace(t)}}
	m := valid()
	m.Namespace = namespace.Name
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	// The policy sees Modules as a watch brings them, a moment after they are made.
	eventually(t, "the deletion is refused", func(ctx context.Context) (bool, error) {
		return admin.Delete(ctx, namespace, client.DryRunAll) != nil, nil
	})
	check(t, admin.Delete(t.Context(), namespace), "namespace still holds Module nic")
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion is allowed", func(ctx context.Context) (bool, error) {
		return admin.Delete(ctx, namespace) == nil, nil
	})
}
