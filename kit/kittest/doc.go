// SPDX-License-Identifier: Apache-2.0

// Package kittest tests a device operator in `go test`, with no cluster, no privilege and no
// hardware: one call starts a real control plane (etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler), the real Drover with its CRDs, policies and roles, and nodes on which real
// agents load modules into fake kernels. The operator under test runs under exactly the role that
// is generated for it, in the test's process or as a process of its own.
//
//	func TestMain(m *testing.M) {
//		os.Exit(kittest.Main(m, kittest.Options{
//			Nodes:       []kittest.NodeOptions{{Labels: map[string]string{"acme.example.com/device": "true"}}, {}},
//			Manifests:   []string{"../../config/crd"},
//			AddToScheme: []func(*runtime.Scheme) error{v1alpha1.AddToScheme},
//			Operators: []kittest.OperatorOptions{
//				{Name: "acme-card-operator", Roles: []string{"../../config/rbac/role.yaml"}, Program: &operator.Program},
//			},
//		}))
//	}
//
//	func TestMissingDeviceIsTold(t *testing.T) {
//		c := kittest.Shared(t)
//		c.Node(0).FailLoad(t, "card", "ENODEV")
//		o := &v1alpha1.Card{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace(t), Name: "sample"}}
//		c.Apply(t, o.Namespace, "../../config/samples")
//		t.Cleanup(func() { c.Delete(t, o) })
//
//		kittest.AwaitCondition(t, c, o, "Ready", metav1.ConditionFalse, "NoSuchDevice")
//	}
//
// `drover new operator` writes an operator with these tests, and they pass.
//
// What can go wrong is one call: [Node.FailLoad], [Node.HangLoad], [Node.CrashLoad], [Node.Remove],
// [Node.Hold], [Node.Reboot], [Node.PowerOff], [Node.NotReady], [Cluster.BreakImages] and others.
// Waiting is by watch: [Await], [AwaitReady], [AwaitCondition], [AwaitGone]. What a kernel really
// holds, [Node.Kernel] says; what the operator wrote, the API server's audit log:
// [Operator.Writes], [Operator.SecondPass].
//
// # What is real, and what is not
//
// API server, admission, garbage collection, DaemonSets, scheduling, Drover and its agents are
// real. Kernels and container images are not: an image exists unless [Cluster.BreakImages] says
// otherwise, and has the kernel module that is asked for. Pods other than Drover's run nothing;
// they become Ready. Extended resources are there where NodeOptions.Devices says so.
//
// # Requirements
//
// Linux or macOS and a Go toolchain: Drover's programs are built from the sources that the test's
// module requires, once. The control plane takes minutes then, and is kept beside Drover's sources,
// or in the user's cache folder where these are read-only. The environment variable
// DROVER_DEVCLUSTER names one that is built already. Vendored modules (go build -mod=vendor) do not
// have these sources.
package kittest
