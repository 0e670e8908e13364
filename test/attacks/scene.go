// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/agentpod"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/operator/controller/startup"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// kernelVersion is that of nodes who say the truth.
const kernelVersion = "6.1.0-44-amd64"

// patience is how long the operator may take for what it is expected to do, and grace how long the
// API server may take to learn of a policy's parameters.
const (
	patience = 30 * time.Second
	grace    = 5 * time.Second
	pace     = 20 * time.Millisecond
)

// Scene is where one attack takes place: namespaces, nodes and users of its own, in a cluster that
// all attacks share.
type Scene struct {
	*testing.T
	env   *env.Env
	admin client.WithWatch
	// namespace is the tenant's.
	namespace string
	nodes     int
}

func newScene(t *testing.T) *Scene {
	t.Helper()
	e := env.Get(t)
	return &Scene{T: t, env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
}

// must ends the attempt where what has to work does not: that is no answer to the attack.
func (s *Scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("the attempt could not be made: %v", err)
	}
}

// create makes objects as the administrator.
func (s *Scene) create(objects ...client.Object) {
	s.Helper()
	for _, object := range objects {
		s.must(s.admin.Create(s.Context(), object))
	}
}

// user is a person with these ClusterRoles in the tenant's namespace, or everywhere.
func (s *Scene) user(everywhere bool, roles ...string) client.WithWatch {
	s.Helper()
	name := userOf(s.namespace)
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}}
	for _, role := range roles {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		meta := metav1.ObjectMeta{Name: s.namespace + "." + strings.ReplaceAll(role, ":", ".")}
		if everywhere {
			s.create(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		} else {
			meta.Namespace = s.namespace
			s.create(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		}
	}
	return s.env.Client(s, s.env.UserConfig(s, name))
}

func userOf(namespace string) string { return "user-of-" + namespace }

// token asks for a token of a ServiceAccount.
func (s *Scene) token(c client.Client, namespace, account string) error {
	request := &authenticationv1.TokenRequest{}
	return c.SubResource("token").Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: meta(namespace, account)}, request)
}

// tenant has what the built-in roles edit and view aggregate. No controller does that here, so each
// part is bound by itself.
func (s *Scene) tenant() client.WithWatch {
	s.Helper()
	return s.user(false, s.aggregated()...)
}

func (s *Scene) aggregated() []string {
	s.Helper()
	var roles rbacv1.ClusterRoleList
	s.must(s.admin.List(s.Context(), &roles))
	var names []string
	for i := range roles.Items {
		for _, into := range []string{"edit", "view"} {
			if roles.Items[i].Labels["rbac.authorization.k8s.io/aggregate-to-"+into] == "true" {
				names = append(names, roles.Items[i].Name)
			}
		}
	}
	return names
}

// editor may write Modules of the tenant's namespace, and has all that a tenant has.
func (s *Scene) editor() client.WithWatch {
	s.Helper()
	return s.user(false, append(s.aggregated(), "drover-module-editor")...)
}

// kubelet has the credentials of a node's kubelet.
func (s *Scene) kubelet(node string) client.WithWatch {
	s.Helper()
	return s.env.Client(s, s.env.UserConfig(s, "system:node:"+node, "system:nodes"))
}

// agent has the token of the agent on a node.
func (s *Scene) agent(node string) client.WithWatch {
	s.Helper()
	return s.env.Client(s, s.env.AgentConfig(s, node))
}

// operator has the operator's token.
func (s *Scene) operator() client.WithWatch {
	s.Helper()
	return s.env.Client(s, s.env.Config(s, env.Operator))
}

// config is for another ServiceAccount of Drover's.
func (s *Scene) config(account string) *rest.Config { return s.env.Config(s, account) }

// node makes a node that is ready and runs a kernel.
func (s *Scene) node(kernel string, change ...func(*corev1.Node)) string {
	s.Helper()
	s.nodes++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%d", s.namespace, s.nodes), Labels: map[string]string{"pool": s.namespace},
	}}
	for _, f := range change {
		f(node)
	}
	s.create(node)
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		KernelVersion: kernel, KubeletVersion: s.env.KubeletVersion(s), ContainerRuntimeVersion: "containerd://2.1.4",
		Architecture: "amd64", OperatingSystem: "linux", BootID: "boot-1",
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.must(s.admin.Status().Update(s.Context(), node))
	return node.Name
}

// module is one for the scene's nodes that the API server accepts, changed.
func (s *Scene) module(change ...func(*v1beta1.Module)) *v1beta1.Module {
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"pool": s.namespace},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: "registry.example.com/nic:$KERNEL_VERSION"}},
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
			}},
		},
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func container(m *v1beta1.Module) *v1beta1.ModuleLoaderContainerSpec {
	return &m.Spec.ModuleLoader.Container
}

// limit makes a ModulePolicy for the tenant's namespace.
func (s *Scene) limit(change func(*v1alpha1.ModulePolicySpec)) {
	s.Helper()
	p := &v1alpha1.ModulePolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: v1alpha1.ModulePolicySpec{
		Mode:              v1alpha1.PolicyEnforce,
		NamespaceSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
	}}
	change(&p.Spec)
	s.create(p)
	s.Cleanup(func() {
		if err := s.admin.Delete(context.Background(), p); err != nil {
			s.Error(err)
		}
	})
}

// soon repeats an attempt until it is refused: the API server learns of a ModulePolicy a moment
// after it is made. The attempt must leave nothing behind.
func (s *Scene) soon(try func(context.Context) error) error {
	var refusal error
	// What ends the wait is in refusal. The last try may take longer than the wait.
	_ = wait.PollUntilContextTimeout(s.Context(), pace, grace, true, func(context.Context) (bool, error) {
		refusal = try(s.Context())
		return refusal != nil, nil
	})
	return refusal
}

// await waits for what the operator must do, whether the attack has success or not.
func (s *Scene) await(what string, done func(context.Context) (bool, error)) {
	s.Helper()
	if err := wait.PollUntilContextTimeout(s.Context(), pace, patience, true, done); err != nil {
		s.Fatalf("the attempt could not be made: wait for %s: %v", what, err)
	}
}

// merge and strategic are patches.
func merge(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

func strategic(format string, args ...any) client.Patch {
	return client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, format, args...))
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// serverArguments are what kubeadm and its like set, too.
var serverArguments = map[string]string{
	"authorization-mode":       "Node,RBAC",
	"enable-admission-plugins": "NodeRestriction",
}

// metricsAddress is where the operator serves its metrics.
var metricsAddress string

// startOperator runs the operator's controllers under its own ServiceAccount, with its own cache,
// as cmd/drover-operator does. It ends with the test.
func (s *Scene) startOperator() {
	s.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	metricsAddress = free.Addr().String()
	s.must(free.Close())
	o, err := operator.ParseFlags([]string{
		"--namespace=" + env.OperatorNamespace, "--agent-image=" + env.AgentImage, "--leader-elect=false",
		"--signer-image=registry.example.com/drover-signer:1",
		"--build-image=registry.example.com/buildah@sha256:" + strings.Repeat("a", 64), "--build-host-modules=false",
		"--metrics-bind-address=" + metricsAddress, "--health-probe-bind-address=0",
	})
	s.must(err)
	o.Log = logr.Discard()
	mgr, err := operator.NewManager(s.config(env.Operator), o)
	s.must(err)
	o.Orders.CarrierUser, err = operator.CarrierUser(mgr.GetRESTMapper())
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, mgr, o, controllers(mgr, o)) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
}

// controllers are those that attacks go through.
func controllers(mgr ctrl.Manager, o *operator.Options) map[string]operator.Controller {
	c, live, closed, numbers := mgr.GetClient(), mgr.GetAPIReader(), &gate.Gate{}, metrics.NewBoard()
	recorder := kube.NewRecorder(mgr.GetEventRecorder(operator.Name))
	return map[string]operator.Controller{
		"module":  module.New(c, live, o.Module(recorder, closed, numbers)),
		"node":    node.New(c, node.Options{Makes: o.Makes(), UnloadTaints: o.UnloadTaints, Recorder: recorder, Metrics: numbers, Gate: closed}),
		"plugin":  plugin.New(c, live, plugin.Options{AgentImage: o.Orders.AgentImage, DRA: o.Orders.DRA, Gate: closed}),
		"startup": startup.New(c, o.StartupTaints, o.UnloadTaints, closed),
		"agents":  agentpod.New(c, live, o.Namespace, closed, nil),
		"image":   moduleimage.New(c, live, o.Images(closed)),
	}
}

// install creates the objects of a file.
func (s *Scene) install(file string) {
	s.Helper()
	content, err := os.ReadFile(file)
	s.must(err)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		s.must(yaml.Unmarshal([]byte(document), &object.Object))
		s.create(object)
	}
}

// without takes an admission policy's binding away, and returns when the API server knows: it
// learns of bindings in their order, so another one that comes later is in force no earlier.
func (s *Scene) without(policy string) {
	s.Helper()
	const canary = "attacks-canary"
	s.create(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta("", canary), Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			ResourceNames: []string{canary},
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "false"}},
	}})
	s.must(s.admin.Delete(s.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta("", policy)}))
	s.create(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta("", canary),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: canary, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}})
	s.await("the canary", func(ctx context.Context) (bool, error) {
		return s.admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta(s.namespace, canary)}, client.DryRunAll) != nil, nil
	})
}
