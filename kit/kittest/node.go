// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

// Node is one node of the cluster. What its methods break stays broken until it is mended or the
// test ends.
type Node struct {
	// Name of the Node object.
	Name string
	c    *Cluster
}

// Node returns the node of Options.Nodes[i].
func (c *Cluster) Node(i int) *Node { return &Node{Name: "hollow-" + strconv.Itoa(i), c: c} }

// equip gives the nodes their labels and devices.
func (c *Cluster) equip(ctx context.Context) error {
	if c.o.WithoutDrover {
		return nil
	}
	for i := range c.o.Nodes {
		o, name := &c.o.Nodes[i], c.Node(i).Name
		if err := c.patchNode(ctx, name, "", map[string]any{"metadata": map[string]any{"labels": o.Labels}}); err != nil {
			return err
		}
		if len(o.Devices) == 0 {
			continue
		}
		room := map[string]any{"status": map[string]any{"capacity": o.room(), "allocatable": o.room()}}
		if err := c.patchNode(ctx, name, "status", room); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) patchNode(ctx context.Context, name, subresource string, patch any) error {
	content, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	node, raw := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, content)
	if subresource == "status" {
		err = c.Client.Status().Patch(ctx, node, raw)
	} else {
		err = c.Client.Patch(ctx, node, raw)
	}
	if err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	return nil
}

// Label sets a label of the Node object for the rest of the test.
func (n *Node) Label(t testing.TB, key, value string) {
	t.Helper()
	n.setLabel(t, key, &value)
	t.Cleanup(func() { n.setLabel(t, key, nil) })
}

// Unlabel removes a label. A reboot does not bring it back.
func (n *Node) Unlabel(t testing.TB, key string) {
	t.Helper()
	n.setLabel(t, key, nil)
}

func (n *Node) setLabel(t testing.TB, key string, value *string) {
	t.Helper()
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]*string{key: value}}}
	if err := n.c.patchNode(context.WithoutCancel(t.Context()), n.Name, "", patch); err != nil {
		t.Fatal(err)
	}
}

// Kernel is what the node's fake kernel says of itself. It owes nothing to any status in the API.
type Kernel struct {
	// Release is what uname -r says.
	Release string
	// BootID changes with every boot.
	BootID string
	// Loaded has the parameters of each kernel module that is loaded, by name.
	Loaded map[string]map[string]string
	// Loads and Unloads count what the kernel granted to the agent, in all boots.
	Loads, Unloads int
}

// Kernel asks the fake kernel.
func (n *Node) Kernel(t testing.TB) Kernel {
	t.Helper()
	all, err := n.c.fleet.Truth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Name == n.Name {
			return kernelOf(&all[i])
		}
	}
	t.Fatalf("there is no node %s", n.Name)
	return Kernel{}
}

func kernelOf(truth *fleet.NodeTruth) Kernel {
	k := Kernel{Release: truth.Kernel, BootID: truth.BootID, Loaded: map[string]map[string]string{}, Loads: truth.Loads,
		Unloads: truth.Unloads}
	for _, m := range truth.Loaded {
		k.Loaded[m.Name] = m.Params
	}
	return k
}

// Has says whether the kernel holds a module now.
func (k Kernel) Has(module string) bool {
	_, ok := k.Loaded[module]
	return ok
}

// does calls a verb of the node: names and values of arguments by turns.
func (n *Node) does(t testing.TB, verb string, args ...string) {
	t.Helper()
	n.c.does(t, verb, append([]string{"node", n.Name}, args...)...)
}

func (c *Cluster) does(t testing.TB, verb string, args ...string) {
	t.Helper()
	q := url.Values{}
	for i := 0; i < len(args); i += 2 {
		q.Set(args[i], args[i+1])
	}
	if err := c.fleet.Debug(context.WithoutCancel(t.Context()), "/"+verb+"?"+q.Encode()); err != nil {
		t.Fatal(err)
	}
}
