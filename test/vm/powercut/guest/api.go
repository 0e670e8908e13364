// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const nodeName = "powercut"

// apiServer is what an agent sees of an API server: one object, a watch of it, writes of its
// status, and the cluster's identity.
type apiServer struct {
	mu      sync.Mutex
	object  v1beta1.NodeModulesConfig
	version int
	// changed is closed, and made anew, with each version.
	changed chan struct{}
}

func newAPIServer() *apiServer {
	s := &apiServer{changed: make(chan struct{})}
	s.object.TypeMeta = metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "NodeModulesConfig"}
	s.object.Name, s.object.UID = nodeName, "object"
	s.put(func(*v1beta1.NodeModulesConfig) {})
	return s
}

// put changes the object.
func (s *apiServer) put(change func(*v1beta1.NodeModulesConfig)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.object)
	s.version++
	s.object.ResourceVersion = strconv.Itoa(s.version)
	close(s.changed)
	s.changed = make(chan struct{})
}

// get returns the object and what is closed with its next version.
func (s *apiServer) get() (*v1beta1.NodeModulesConfig, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.object.DeepCopy(), s.changed
}

// serve returns what reaches the server.
func (s *apiServer) serve(ctx context.Context) (*rest.Config, error) {
	const socket = "/api.sock"
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	go func() { _ = http.Serve(listener, s) }() //nolint:gosec // one client, ours; ends with the machine
	return &rest.Config{Host: "http://api", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}, nil
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.Contains(r.URL.Path, "/namespaces/"):
		answer(w, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{UID: "cluster"}})
	case r.Method == http.MethodPatch:
		var patch struct {
			Status v1beta1.NodeModulesConfigStatus `json:"status"`
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.put(func(o *v1beta1.NodeModulesConfig) { o.Status = patch.Status })
		object, _ := s.get()
		answer(w, object)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	default:
		object, _ := s.get()
		answer(w, &v1beta1.NodeModulesConfigList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "NodeModulesConfigList"},
			ListMeta: metav1.ListMeta{ResourceVersion: object.ResourceVersion}, Items: []v1beta1.NodeModulesConfig{*object},
		})
	}
}

// watch streams the object, first as it is and then with each change.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	event := func(kind string, object *v1beta1.NodeModulesConfig) {
		answer(w, map[string]any{"type": kind, "object": object})
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	object, changed := s.get()
	event("ADDED", object)
	if r.URL.Query().Get("sendInitialEvents") != "" {
		end := &v1beta1.NodeModulesConfig{TypeMeta: object.TypeMeta}
		end.ResourceVersion, end.Annotations = object.ResourceVersion, map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		event("BOOKMARK", end)
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		object, changed = s.get()
		event("MODIFIED", object)
	}
}

// answer writes a body; the only client notices when it does not arrive.
func answer(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }
