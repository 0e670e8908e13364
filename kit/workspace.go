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

// Workspace is a custom resource in which [Once] remembers what it has begun. It belongs to an
// object, has its namespace and name, and no reconciler, and nothing in it can be observed
// elsewhere.
type Workspace interface {
	client.Object
	// Pending points to a map in the spec: nonces by effects that may have happened.
	Pending() *map[string]string
	// Done points to a map in the spec: nonces by effects that have happened.
	Done() *map[string]string
}

// Direct is a client without a cache, for workspaces. A manager's client would watch all of them,
// to know when its cache has seen a write.
func Direct(mgr manager.Manager) (client.Client, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(),
		Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client without a cache: %w", err)
	}
	return c, nil
}

// Once makes something outside of the cluster happen exactly once for an object, whenever the
// process dies, if the other side takes two requests with one nonce for one. Each call
//
//   - reads the workspace from the API server, and returns nil if the effect has happened;
//   - writes a nonce into it, unless an earlier call that did not finish did;
//   - calls do with the nonce;
//   - writes that the effect has happened, and removes the nonce, in one step.
//
// effect names what happens: an effect with other data needs another name. Of effects SERIES/NAME,
// the workspace remembers only the last of a series, so that it does not grow. c writes without a
// cache, see [Direct]; live reads from the API server. empty is an empty workspace. After an error
// of do, which is returned, the next call uses the same nonce. After a conflict, try again.
func Once(ctx context.Context, c client.Client, live client.Reader, owner client.Object, empty Workspace, effect string,
	do func(ctx context.Context, nonce string) error) error {
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
		put(w.Done(), effect, nonce)
		delete(*w.Pending(), effect)
	})
}

// begin returns the workspace with the effect done or pending.
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
			Message: fmt.Sprintf("Workspace %T %s does not belong to %s: delete or rename one of them", w, w.GetName(), owner.GetName()),
		}
	}
	_, done := (*w.Done())[effect]
	_, pending := (*w.Pending())[effect]
	if done || pending {
		return w, nil
	}
	return w, change(ctx, c, w, func() { put(w.Pending(), effect, nonce) })
}

// change writes the workspace if nobody else has since it was read.
func change(ctx context.Context, c client.Client, w Workspace, f func()) error {
	before := copyOf(w)
	f()
	if err := c.Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the workspace: %w", err)
	}
	return nil
}

// put notes an effect, in place of others of its series.
func put(notes *map[string]string, effect, nonce string) {
	if series, _, found := strings.Cut(effect, "/"); found {
		maps.DeleteFunc(*notes, func(other, _ string) bool { return strings.HasPrefix(other, series+"/") })
	}
	if *notes == nil {
		*notes = map[string]string{}
	}
	(*notes)[effect] = nonce
}
