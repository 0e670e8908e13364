// SPDX-License-Identifier: Apache-2.0

package memapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// handlers are the filters of a kube-apiserver that change an answer's meaning.
func handlers(handler http.Handler, c *genericapiserver.Config) http.Handler {
	handler = impersonation.WithImpersonation(handler, c.Authorization.Authorizer, c.Serializer)
	handler = filters.WithWarningRecorder(handler)
	handler = filters.WithCacheControl(handler)
	handler = filters.WithRequestInfo(handler, c.RequestInfoResolver)
	handler = filters.WithRequestReceivedTimestamp(handler)
	return filters.WithAuditInit(handler)
}

// As returns a transport whose requests are a user's.
func (s *Server) As(who user.Info) http.RoundTripper { return as{s, who} }

type as struct {
	server *Server
	who    user.Info
}

// RoundTrip answers when the server has begun to answer; a watch goes on until the request's
// context is done or the body is closed.
func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-a.server.ready:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	ctx, cancel := context.WithCancel(request.WithUser(r.Context(), a.who))
	asked := r.Clone(ctx)
	asked.RequestURI = r.URL.RequestURI()
	// Without it, each gets a UUID: where UUIDs are of a seed, objects' alone are to be.
	asked.Header.Set(auditinternal.HeaderAuditID, "memapi")
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	w := &answer{header: http.Header{}, begun: make(chan struct{}), more: sync.NewCond(&sync.Mutex{}), cancel: cancel}
	go func() {
		defer w.end()
		a.server.handler.ServeHTTP(w, asked)
	}()
	context.AfterFunc(ctx, w.wake)
	w.ctx = ctx
	select {
	case <-w.begun:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &http.Response{Status: http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: w, ContentLength: -1, Request: r}, nil
}

// answer is what a handler writes and a client reads, however much of it is not yet read.
type answer struct {
	ctx    context.Context //nolint:containedctx // the request's
	cancel context.CancelFunc
	header http.Header
	sent   http.Header
	code   int
	once   sync.Once
	begun  chan struct{}

	more *sync.Cond
	data bytes.Buffer
	done bool
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	a.once.Do(func() {
		a.code, a.sent = code, a.header.Clone()
		close(a.begun)
	})
}

func (a *answer) Write(text []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.more.L.Lock()
	defer a.more.L.Unlock()
	a.more.Broadcast()
	return a.data.Write(text)
}

// CloseNotify is of http.CloseNotifier, which a watch's handler asks for. The request's context
// tells it the same.
func (a *answer) CloseNotify() <-chan bool { return make(chan bool) }

// Flush is of http.Flusher: what was written is there already.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

func (a *answer) end() {
	a.WriteHeader(http.StatusOK)
	a.more.L.Lock()
	defer a.more.L.Unlock()
	a.done = true
	a.more.Broadcast()
}

func (a *answer) wake() {
	a.more.L.Lock()
	defer a.more.L.Unlock()
	a.more.Broadcast()
}

func (a *answer) Read(into []byte) (int, error) {
	a.more.L.Lock()
	defer a.more.L.Unlock()
	for a.data.Len() == 0 {
		switch {
		case a.done:
			return 0, io.EOF
		case a.ctx.Err() != nil:
			return 0, a.ctx.Err()
		}
		a.more.Wait()
	}
	return a.data.Read(into)
}

// Close is of io.Closer.
func (a *answer) Close() error {
	a.cancel()
	return nil
}
