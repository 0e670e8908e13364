// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// role is what ClusterRoles and Roles have in common.
type role struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Rules             []rbacv1.PolicyRule `json:"rules"`
}

// grant installs the roles of a file for this operator alone.
func (o *Operator) grant(ctx context.Context, file string) error {
	content, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read a role: %w", err)
	}
	defer func() { _ = content.Close() }() // only read from
	decoder := yaml.NewYAMLOrJSONDecoder(content, 4096)
	for n := 0; ; n++ {
		var r role
		err := decoder.Decode(&r)
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the roles of %s: %w", file, err)
		}
		objects, err := o.bind(r)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, object := range objects {
			if err := o.c.Client.Create(ctx, object); err != nil {
				return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
			}
		}
	}
}

// bind returns a role under a name that no other operator's has, and its binding.
func (o *Operator) bind(r role) ([]client.Object, error) {
	meta := metav1.ObjectMeta{Name: o.o.Name + ":" + r.Name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: r.Kind, Name: meta.Name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.Namespace(), Name: o.o.Name}}
	switch r.Kind {
	case "ClusterRole":
		return []client.Object{
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: r.Rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
		}, nil
	case "Role":
		meta.Namespace = cmp.Or(r.Namespace, o.Namespace())
		return []client.Object{
			&rbacv1.Role{ObjectMeta: meta, Rules: r.Rules}, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
		}, nil
	}
	return nil, fmt.Errorf("%s %s is neither a ClusterRole nor a Role", r.Kind, r.Name)
}
