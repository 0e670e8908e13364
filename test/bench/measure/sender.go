// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/internal/testkit/audit"
)

const (
	// floorAgent is the user agent of the floor's requests.
	floorAgent = "floor/1"
	// smallAnswer asks for an answer without the object: only its UID is needed.
	smallAnswer = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// sender sends recorded requests once more, under the identity that sent them.
type sender struct {
	admin *rest.Config

	mu      sync.Mutex
	clients map[string]*http.Client // by identity
}

func newSender(admin *rest.Config) *sender {
	return &sender{admin: admin, clients: map[string]*http.Client{}}
}

// client speaks as the user who made the request. All share one transport.
func (s *sender) client(r audit.Request) (*http.Client, error) {
	key := r.User.Username + " " + strings.Join(r.User.Extra["authentication.kubernetes.io/node-name"], ",")
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[key]; c != nil {
		return c, nil
	}
	config := rest.CopyConfig(s.admin)
	config.UserAgent = floorAgent
	config.Impersonate = rest.ImpersonationConfig{UserName: r.User.Username, Groups: r.User.Groups, Extra: r.User.Extra}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect as %s: %w", r.User.Username, err)
	}
	s.clients[key] = c
	return c, nil
}

// again sends a request with a body of the same kind, and returns the metadata of the answer.
func (s *sender) again(ctx context.Context, r audit.Request, body []byte) (*metav1.PartialObjectMetadata, error) {
	c, err := s.client(r)
	if err != nil {
		return nil, err
	}
	method := map[string]string{"create": http.MethodPost, "patch": http.MethodPatch, "delete": http.MethodDelete}[r.Verb]
	request, err := http.NewRequestWithContext(ctx, method, s.admin.Host+r.URI, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	request.Header.Set("Content-Type", contentType(r.Verb, body))
	request.Header.Set("Accept", smallAnswer)
	answer, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = &refusal{code: answer.StatusCode, text: string(content)}
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(content, object); err != nil {
		return nil, fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	return object, nil
}

// refusal is an answer other than success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.text) }

// isGone says whether a delete was granted, or the object was gone already.
func isGone(err error) bool {
	var r *refusal
	return err == nil || errors.As(err, &r) && (r.code == http.StatusNotFound || r.code == http.StatusConflict)
}

// contentType of a body. The audit log does not tell the forms of a patch apart, but a JSON patch
// is a list, and what is applied names its kind.
func contentType(verb string, body []byte) string {
	switch {
	case verb != "patch":
		return "application/json"
	case bytes.HasPrefix(body, []byte("[")):
		return "application/json-patch+json"
	case bytes.Contains(body, []byte(`"apiVersion"`)):
		return "application/apply-patch+yaml"
	}
	return "application/merge-patch+json"
}
