// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// film is every state that one object goes through: a poll could miss a short one.
type film struct {
	s *scenario
	w watch.Interface
}

// film begins with the object's present state, if there is one.
func (s *scenario) film(list client.ObjectList, name string, where ...client.ListOption) *film {
	s.Helper()
	w, err := shared.watch.Watch(s.Context(), list, append(where, client.MatchingFields{"metadata.name": name})...)
	s.must(err)
	s.Cleanup(w.Stop)
	return &film{s: s, w: w}
}

// next is the object's next state; nil: it was deleted.
func (f *film) next(ctx context.Context) (client.Object, error) {
	select {
	case e, ok := <-f.w.ResultChan():
		o, isObject := e.Object.(client.Object)
		switch {
		case !ok || !isObject:
			return nil, fmt.Errorf("the watch ended: %v", e.Object)
		case e.Type == watch.Deleted:
			return nil, nil
		}
		return o, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("nothing more in %s", patience)
	}
}

// until reads on until the frames are all there, in order and with nothing else between them. frame
// describes a state; an object that is deleted is "deleted".
func (f *film) until(frame func(client.Object) string, want ...string) {
	f.s.Helper()
	ctx, cancel := context.WithTimeout(f.s.Context(), patience)
	defer cancel()
	var seen []string
	for len(seen) < len(want) {
		now := "deleted"
		o, err := f.next(ctx)
		if err != nil {
			f.s.Fatalf("the object was to go through %q; it had been through %q: %v", want, seen, err)
		}
		if o != nil {
			now = frame(o)
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
