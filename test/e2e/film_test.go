// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// film is every state that one object goes through: a poll could miss a short one.
type film struct {
	s *scenario
	w watch.Interface
}

// film begins with the object's present state, if there is one.
func (s *scenario) film(list client.ObjectList, name string) *film {
	s.Helper()
	w, err := shared.watch.Watch(s.Context(), list, client.MatchingFields{"metadata.name": name})
	s.must(err)
	s.Cleanup(w.Stop)
	return &film{s: s, w: w}
}

// until reads on until the frames are all there, in order and with nothing else between them. frame describes a state;
// an object that is deleted is "deleted".
func (f *film) until(frame func(client.Object) string, want ...string) {
	f.s.Helper()
	ctx, cancel := context.WithTimeout(f.s.Context(), patience)
	defer cancel()
	var seen []string
	for len(seen) < len(want) {
		var now string
		select {
		case e, ok := <-f.w.ResultChan():
			o, isObject := e.Object.(client.Object)
			switch {
			case !ok || !isObject:
				f.s.Fatalf("the watch ended (%v) after %q", e.Object, seen)
			case e.Type == watch.Deleted:
				now = "deleted"
			default:
				now = frame(o)
			}
		case <-ctx.Done():
			f.s.Fatalf("the object was to go through %q; after %s it had been through %q", want, patience, seen)
		}
		if len(seen) > 0 && seen[len(seen)-1] == now {
			continue
		}
		seen = append(seen, now)
		if want[len(seen)-1] != now {
			f.s.Fatalf("the object was to go through %q; it went through %q", want, seen)
		}
	}
}
