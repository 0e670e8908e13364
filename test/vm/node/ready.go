// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

var errEnded = errors.New("it has ended")

// pollInterval of waits on the API.
const pollInterval = 200 * time.Millisecond

// WaitReady waits until the API server has the node Ready in the boot that is
// running now: after a reboot the object keeps the old boot's condition for a
// while.
func (n *Node) WaitReady(ctx context.Context, client kubernetes.Interface) (*corev1.Node, error) {
	boot, err := n.WaitUp(ctx)
	if err != nil {
		return nil, err
	}
	node, err := waitReady(ctx, client, n.config.Name, n.Ended(),
		func(found *corev1.Node) bool { return found.Status.NodeInfo.BootID == boot })
	if err != nil {
		return nil, errors.Join(err, n.lastWords())
	}
	return node, nil
}

// waitReady waits until the API server has a node Ready that is the one that is meant. Ended is
// closed when nothing runs there any more.
func waitReady(ctx context.Context, client kubernetes.Interface, name string, ended <-chan struct{},
	meant func(*corev1.Node) bool) (*corev1.Node, error) {
	var node *corev1.Node
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, errEnded
		default:
		}
		found, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("get the node: %w", err)
		}
		node = found
		return meant(found) && isReady(found), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait until node %s is ready: %w", name, err)
	}
	return node, nil
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
