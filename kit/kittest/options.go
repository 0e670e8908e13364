// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drover-project/drover/kit"
)

const (
	// DefaultKernel is what a node runs that names no kernel.
	DefaultKernel = "6.12.57+deb12-amd64"
	// defaultPatience is long because the machine may be busy; nothing waits longer than it must.
	defaultPatience = 90 * time.Second
	// callDeadline is how long a call of a fake kernel may take until it is left behind: what hangs is
	// told soon.
	callDeadline = 3 * time.Second
)

// Options say what to start. The zero value is Drover with two nodes.
type Options struct {
	// Nodes of the cluster; nil for two.
	Nodes []NodeOptions
	// Manifests are installed first, by the administrator, as `kubectl apply --server-side` does: YAML
	// files, folders of them, or folders with a kustomization.yaml. Paths are relative to the test's
	// folder. The CRDs among them are being served when Start returns.
	Manifests []string
	// AddToScheme makes the operator's kinds known to the cluster's clients.
	AddToScheme []func(*runtime.Scheme) error
	// Operators run when Start returns, each under its own role.
	Operators []OperatorOptions
	// WithoutDrover leaves Drover and the nodes out: a control plane, Manifests and Operators.
	WithoutDrover bool
	// Ooto has Drover serve Modules of the older group ooto.sigs.k8s.io, too.
	Ooto bool
	// Patience bounds each wait; 0 for 90 s.
	Patience time.Duration
}

// NodeOptions describe one node: a real agent over a fake kernel.
type NodeOptions struct {
	// Kernel is the version that it runs; empty for DefaultKernel.
	Kernel string
	// OSImage is status.nodeInfo.osImage, such as "Red Hat Enterprise Linux CoreOS 418.94"; empty for
	// that of hollow nodes.
	OSImage string
	// Labels beside the usual ones.
	Labels map[string]string
	// Devices are extended resources with how many of each the node has, such as "example.com/card":
	// 2. On a real node a device plugin tells the kubelet of them; pods of device plugins are played
	// here, so that nobody would.
	Devices map[corev1.ResourceName]int64
}

// OperatorOptions describe an operator under test. It gets a ServiceAccount of its own in the
// namespace "<Name>-system", with exactly the rights of Roles.
type OperatorOptions struct {
	// Name tells operators apart. It is the name of its ServiceAccount.
	Name string
	// Roles are files with the ClusterRoles and Roles that `make manifests` generates. They are bound
	// to the ServiceAccount here, a Role without a namespace in the operator's. Several operators may
	// have one of the same name.
	Roles []string
	// Program runs in this process, as kit.Main runs it, without open ports. Either Program or Package
	// is set, or neither: then nothing runs, and Operator.Client plays the operator.
	Program *kit.Program
	// Package is the operator's main package as `go build` in the test's folder names it, such as
	// "../../cmd/widget-operator". It runs as a process that finds the cluster by KUBECONFIG.
	Package string
	// Args of the process; nil for those that keep a program built on package kit from opening ports.
	Args []string
	// Env of the process, beside this process's own, as NAME=VALUE.
	Env []string
}

// quietArgs let several operators run on one machine.
var quietArgs = []string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false"}

func (o *Options) complete() error {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.WithoutDrover && len(o.Nodes) > 0 {
		return errors.New("kittest: nodes need Drover, which is left out")
	}
	if o.Nodes == nil {
		o.Nodes = make([]NodeOptions, 2)
	}
	names := map[string]bool{}
	for _, operator := range o.Operators {
		switch {
		case operator.Name == "" || names[operator.Name]:
			return fmt.Errorf("kittest: an operator needs a name of its own, and one is called %q", operator.Name)
		case operator.Program != nil && operator.Package != "":
			return fmt.Errorf("kittest: operator %s has both Program and Package", operator.Name)
		}
		names[operator.Name] = true
	}
	return nil
}

func (o *Options) kernels() []string {
	var all []string
	for _, n := range o.Nodes {
		if n.Kernel == "" {
			n.Kernel = DefaultKernel
		}
		all = append(all, n.Kernel)
	}
	return all
}

// hollowArgs are those of the process that plays the nodes.
func (o *Options) hollowArgs() []string {
	args := []string{"--kernel-call-deadline=" + callDeadline.String()}
	for _, n := range o.Nodes {
		args = append(args, "--os-image="+n.OSImage)
	}
	return args
}

// room is what a node's status says of its devices.
func (n *NodeOptions) room() corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, count := range n.Devices {
		list[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}
