// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// copies is the ConfigMap that holds what --apply took away. A key is kind.name, a value the object
// as JSON; of definitions it is the conversion alone.
const copies = "drover-migrate-kmm"

// keep saves a copy. One that is there stays: it is what KMM wrote, and a later one may be ours.
func (a *api) keep(ctx context.Context, kind, name string, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", kind, name, err)
	}
	saved, err := a.saved(ctx)
	if err != nil {
		return err
	}
	if saved == nil {
		if saved, err = a.newCopies(ctx); err != nil {
			return err
		}
	}
	key := kind + "." + name
	if _, there, err := unstructured.NestedString(saved.Object, "data", key); there || err != nil {
		return err //nolint:wrapcheck // a ConfigMap's data are strings
	}
	if err := unstructured.SetNestedField(saved.Object, string(text), "data", key); err != nil {
		return fmt.Errorf("save %s: %w", key, err)
	}
	return a.update(ctx, configMaps, saved)
}

func (a *api) saved(ctx context.Context) (*unstructured.Unstructured, error) {
	return a.get(ctx, configMaps, droverNamespace, copies)
}

// newCopies makes the ConfigMap, and the namespace if Drover was never here.
func (a *api) newCopies(ctx context.Context) (*unstructured.Unstructured, error) {
	namespace := object("v1", "Namespace", "", droverNamespace)
	if _, err := a.create(ctx, namespaces, namespace); err != nil {
		return nil, err
	}
	if _, err := a.create(ctx, configMaps, object("v1", "ConfigMap", droverNamespace, copies)); err != nil {
		return nil, err
	}
	made, err := a.saved(ctx)
	if err == nil && made == nil {
		err = errors.New("ConfigMap " + copies + " was deleted meanwhile")
	}
	return made, err
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(map[string]string{partOf: ours})
	return o
}

// clean is an object as somebody could create it.
func clean(from *unstructured.Unstructured) *unstructured.Unstructured {
	o := from.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o
}

// copied reads copies of a kind by name.
func copied(saved *unstructured.Unstructured, kind string) (map[string]*unstructured.Unstructured, error) {
	found := map[string]*unstructured.Unstructured{}
	if saved == nil {
		return found, nil
	}
	data, _, err := unstructured.NestedStringMap(saved.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", copies, err)
	}
	for key, text := range data {
		name, is := strings.CutPrefix(key, kind+".")
		if !is {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			return nil, fmt.Errorf("read %s in ConfigMap %s: %w", key, copies, err)
		}
		found[name] = o
	}
	return found, nil
}
