// SPDX-License-Identifier: Apache-2.0

//go:build linux

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

func (s *steps) uninstalled(ctx context.Context) (err error) {
	if s.definitions, err = s.crds(ctx); err != nil {
		return err
	}
	if len(s.definitions) == 0 {
		return errors.New("there are no definitions")
	}
	if found, err := s.finalizers(ctx); err != nil || len(found) == 0 {
		return errors.Join(err, errors.New("no finalizer is there that an uninstall could take away"))
	}
	if _, err := s.shell().Run(ctx, s.olderDir(), s.commands.Uninstall); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "no pod of Drover is left", s.noPods); err != nil {
		return err
	}
	found, err := s.finalizers(ctx)
	if err != nil {
		return err
	}
	s.Extra["finalizers"] = len(found)
	if len(found) > 0 {
		return fmt.Errorf("finalizers are left: %s", strings.Join(found, ", "))
	}
	return s.left(ctx)
}

// left checks what an uninstall must leave.
func (s *steps) left(ctx context.Context) error {
	after, err := s.crds(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(s.definitions, after) {
		return fmt.Errorf("definitions were %v, and are %v", s.definitions, after)
	}
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, loads.Loader, m); err != nil {
		return err
	}
	if m.DeletionTimestamp != nil {
		return errors.New("the Module is being deleted")
	}
	return nil
}

func (s *steps) noPods(ctx context.Context) error {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(suite.OperatorNamespace))
	if err == nil && len(pods.Items) > 0 {
		err = fmt.Errorf("there are %d pods in %s, such as %s", len(pods.Items), suite.OperatorNamespace, pods.Items[0].Name)
	}
	return err
}

// stillLoaded looks when nothing of Drover runs any more.
func (s *steps) stillLoaded(ctx context.Context) error {
	n := &corev1.Node{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, n); err != nil {
		return err
	}
	if n.Status.NodeInfo.BootID != s.Boots[0] {
		return errors.New("the node was started again")
	}
	return s.oneLoad(ctx)
}

// crds are the names of our definitions that are not going.
func (s *steps) crds(ctx context.Context) ([]string, error) {
	out, err := s.Kubectl(ctx, "get", "crd", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) == 1 && (strings.Contains(fields[0], "kmm.") || strings.Contains(fields[0], "drover.")) {
			names = append(names, fields[0])
		}
	}
	return names, nil
}

// kubernetes are finalizers that Kubernetes' own controllers add and remove.
var kubernetes = []string{
	"customresourcecleanup.apiextensions.k8s.io", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents,
	"batch.kubernetes.io/job-tracking", "networking.k8s.io/service-cidr-finalizer",
}

// finalizers are all that objects of any kind have, but for those of Kubernetes itself.
func (s *steps) finalizers(ctx context.Context) ([]string, error) {
	all, err := discovery.NewDiscoveryClientForConfigOrDie(s.Config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range all {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			items, err := objects.Resource(group.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for i := range items.Items {
				for _, f := range items.Items[i].Finalizers {
					if !slices.Contains(kubernetes, f) {
						found = append(found, fmt.Sprintf("%s on %s %s", f, r.Name, client.ObjectKeyFromObject(&items.Items[i])))
					}
				}
			}
		}
	}
	return found, nil
}
