// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// fields are those of all Modules and NodeModulesConfigs, by path, as they are stored and not as
// either version knows them: of specs with their values, of what nodes report without. Left out are
// what nodes are asked for and say of a Module that moves, how far deliveries are, and what is told
// of tries.
func (s *scene) fields(ctx context.Context, moving types.NamespacedName) (map[string]string, error) {
	all := map[string]string{}
	for _, kind := range []string{"Module", "NodeModulesConfig"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind + "List"))
		if err := s.f.Admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			flatten(all, kind+" "+o.GetName()+" spec", o.Object["spec"], true)
			if kind == "NodeModulesConfig" {
				flatten(all, kind+" "+o.GetName()+" status", o.Object["status"], false)
			}
		}
	}
	maps.DeleteFunc(all, func(path, _ string) bool {
		return strings.Contains(path, " status.attempts[") || strings.Contains(path, " status.artifacts[") ||
			underWay.MatchString(path) || strings.Contains(path, "["+moving.String()+"]")
	})
	return all, nil
}

// underWay are fields of orders that say how far a delivery is.
var underWay = regexp.MustCompile(`\]\.(delivery|next)\.`)

// flatten notes the leaves of a JSON value by their paths. Elements of lists go by their names
// where they have some.
func flatten(into map[string]string, path string, value any, values bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			flatten(into, path+"."+key, inner, values)
		}
	case []any:
		for i, inner := range v {
			key := strconv.Itoa(i)
			if m, ok := inner.(map[string]any); ok && m["namespace"] != nil && m["name"] != nil {
				key = fmt.Sprintf("%v/%v", m["namespace"], m["name"])
			}
			flatten(into, path+"["+key+"]", inner, values)
		}
	default:
		into[path] = ""
		if values {
			into[path] = fmt.Sprint(v)
		}
	}
}

// compare waits until every field that was there before a version changed is there again, and
// counts those that are not.
func (s *scene) compare(ctx context.Context) error {
	before := s.before
	s.before = nil
	var lost []string
	err := wait.PollUntilContextTimeout(ctx, interval, fieldPatience, true, func(ctx context.Context) (bool, error) {
		now, err := s.fields(ctx, s.moving)
		if err == nil { // else it is asked again
			lost = missing(before, now)
		}
		return err == nil && len(lost) == 0, nil
	})
	if err != nil && len(lost) == 0 {
		return fmt.Errorf("compare fields: %w", err)
	}
	for _, l := range lost {
		s.say("lost: %s", l)
	}
	s.result.FieldsLost += len(lost)
	return nil
}

// missing names what is gone or has another value.
func missing(before, now map[string]string) (lost []string) {
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if value, there := now[path]; !there {
			lost = append(lost, path)
		} else if value != before[path] {
			lost = append(lost, fmt.Sprintf("%s: %s, not %s", path, value, before[path]))
		}
	}
	return lost
}
