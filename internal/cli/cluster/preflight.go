// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"

	"github.com/drover-project/drover/api/kmm/v1beta2"
)

var errNoPreflights = fmt.Errorf("this cluster does not know PreflightValidations (%s): install Drover first", v1beta2.GroupVersion)

func (c *Client) preflights() *gentype.ClientWithList[*v1beta2.PreflightValidation, *v1beta2.PreflightValidationList] {
	return of[v1beta2.PreflightValidation, v1beta2.PreflightValidationList](c, v1beta2.GroupVersion, "preflightvalidations", "")
}

// CreatePreflight creates a PreflightValidation, or returns an existing one of that name as it is.
func (c *Client) CreatePreflight(ctx context.Context, p *v1beta2.PreflightValidation) (made *v1beta2.PreflightValidation, existed bool,
	err error) {
	made, err = c.preflights().Create(ctx, p, metav1.CreateOptions{})
	if existed = apierrors.IsAlreadyExists(err); existed {
		made, err = c.preflights().Get(ctx, p.Name, metav1.GetOptions{})
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
	err := c.preflights().Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete PreflightValidation %s: %w", p.Name, err)
	}
	return nil
}

// WatchPreflight watches one PreflightValidation, which comes first as it is.
func (c *Client) WatchPreflight(ctx context.Context, name string) (watch.Interface, error) {
	w, err := c.preflights().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, fmt.Errorf("watch PreflightValidation %s: %w", name, err)
	}
	return w, nil
}
