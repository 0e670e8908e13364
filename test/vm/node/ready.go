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
	var node *corev1.Node
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		select {
		case <-n.Ended():
			return false, errConsoleClosed
		default:
		}
		found, err := client.CoreV1().Nodes().Get(ctx, n.config.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("get the node: %w", err)
		}
		node = found
		return found.Status.NodeInfo.BootID == boot && isReady(found), nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait until node %s is ready: %w", n.config.Name, err), n.lastWords())
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
