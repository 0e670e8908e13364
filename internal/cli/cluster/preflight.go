// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/drover-project/drover/api/kmm/v1beta2"
)

const preflights = "preflightvalidations"

var errNoPreflights = fmt.Errorf("this cluster does not know PreflightValidations (%s): install Drover first", v1beta2.GroupVersion)

// CreatePreflight creates a PreflightValidation, or returns an existing one of that name as it is.
func (c *Client) CreatePreflight(ctx context.Context, p *v1beta2.PreflightValidation) (made *v1beta2.PreflightValidation, existed bool,
	err error) {
	made = &v1beta2.PreflightValidation{}
	err = c.Preflights.Post().Resource(preflights).Body(p).Do(ctx).Into(made)
	if apierrors.IsAlreadyExists(err) {
		existed, err = true, c.Preflights.Get().Resource(preflights).Name(p.Name).Do(ctx).Into(made)
	}
	switch {
	case unknownKind(err):
		return nil, false, errNoPreflights
	case err != nil:
		return nil, false, fmt.Errorf("create a PreflightValidation: %w", err)
	}
	return made, existed, nil
}

// DeletePreflight deletes what CreatePreflight made.
func (c *Client) DeletePreflight(ctx context.Context, p *v1beta2.PreflightValidation) error {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
	if err := c.Preflights.Delete().Resource(preflights).Name(p.Name).Body(options).Do(ctx).Error(); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete PreflightValidation %s: %w", p.Name, err)
	}
	return nil
}

// WatchPreflight watches one PreflightValidation, which comes first as it is.
func (c *Client) WatchPreflight(ctx context.Context, name string) (watch.Interface, error) {
	options := metav1.ListOptions{Watch: true, FieldSelector: "metadata.name=" + name}
	w, err := c.Preflights.Get().Resource(preflights).VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch PreflightValidation %s: %w", name, err)
	}
	return w, nil
}
