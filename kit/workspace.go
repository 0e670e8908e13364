// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Workspace is a custom resource in which an operator remembers what it has begun. It belongs to an object, has its namespace and name, and no
// reconciler. Nobody but [Once] writes it. It is no place for what can be observed: that is read again each time, and shown in a status.
type Workspace interface {
	client.Object
	// Pending is where the nonces of effects are that have been begun and may have happened, by effect: a pointer to a map in the spec.
	Pending() *map[string]string
	// Done is where the nonces of effects are that have happened, by effect: a pointer to a map in the spec.
	Done() *map[string]string
}

// Direct is a client without a cache, for workspaces. A manager's own client would begin to watch every workspace after the first write, so as to know
// when its cache has seen it.
func Direct(mgr manager.Manager) (client.Client, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client without a cache: %w", err)
	}
	return c, nil
}

// Once makes something outside of the cluster happen exactly once for an object, whenever the process dies, if the other side takes two requests with
// one nonce for one. Each time it is called, it
//
//   - reads the workspace from the API server, not from a cache, and returns nil if the effect has happened;
//   - writes a nonce into it, unless there is one: then somebody began and did not get to the end;
//   - calls do with the nonce;
//   - writes that it has happened, and takes the nonce away, in one step.
//
// effect names what happens: what may happen again, with another address say, needs another name. One in the form SERIES/NAME follows those of its
// series: the workspace remembers the last one that has happened, and none before it, so that it does not grow.
// c writes without a cache, see [Direct]; live reads from the API server. empty is an empty workspace. Errors of do are
// returned, and the next call takes the same nonce. A conflict means that somebody else has written the workspace: try again.
func Once(ctx context.Context, c client.Client, live client.Reader, owner client.Object, empty Workspace, effect string, do func(ctx context.Context, nonce string) error) error {
	w, err := begin(ctx, c, live, owner, empty, effect)
	if err != nil {
		return err
	}
	if _, done := (*w.Done())[effect]; done {
		return nil
	}
	nonce := (*w.Pending())[effect]
	if err := do(ctx, nonce); err != nil {
		return fmt.Errorf("%s: %w", effect, err)
	}
	return change(ctx, c, w, func() {
		supersede(*w.Done(), effect)
		put(w.Done(), effect, nonce)
		delete(*w.Pending(), effect)
	})
}

// begin returns the workspace, in which the effect is done or has a nonce.
func begin(ctx context.Context, c client.Client, live client.Reader, owner client.Object, w Workspace, effect string) (Workspace, error) {
	nonce := string(uuid.NewUUID())
	w = copyOf(w)
	err := live.Get(ctx, client.ObjectKeyFromObject(owner), w)
	if apierrors.IsNotFound(err) {
		w.SetNamespace(owner.GetNamespace())
		w.SetName(owner.GetName())
		put(w.Pending(), effect, nonce)
		if err := controllerutil.SetControllerReference(owner, w, c.Scheme()); err != nil {
			return nil, fmt.Errorf("own the workspace: %w", err)
		}
		if err := c.Create(ctx, w); err != nil {
			return nil, fmt.Errorf("create the workspace: %w", err)
		}
		return w, nil
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the workspace: %w", err)
	case !metav1.IsControlledBy(w, owner):
		return nil, &Problem{
			Reason: ReasonNameConflict, Errored: true, RetryAfter: retryAfter,
			Message: fmt.Sprintf("The workspace %T %s belongs to somebody else, and is left alone: delete or rename one of them", w, w.GetName()),
		}
	}
	_, done := (*w.Done())[effect]
	_, pending := (*w.Pending())[effect]
	if done || pending {
		return w, nil
	}
	return w, change(ctx, c, w, func() {
		supersede(*w.Pending(), effect)
		put(w.Pending(), effect, nonce)
	})
}

// change writes the workspace only as it was read.
func change(ctx context.Context, c client.Client, w Workspace, f func()) error {
	before := copyOf(w)
	f()
	if err := c.Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the workspace: %w", err)
	}
	return nil
}

// supersede forgets the effects of the series that an effect is of.
func supersede(notes map[string]string, effect string) {
	series, _, found := strings.Cut(effect, "/")
	if !found {
		return
	}
	maps.DeleteFunc(notes, func(other, _ string) bool { return strings.HasPrefix(other, series+"/") })
}

func put(notes *map[string]string, effect, nonce string) {
	if *notes == nil {
		*notes = map[string]string{}
	}
	(*notes)[effect] = nonce
}
