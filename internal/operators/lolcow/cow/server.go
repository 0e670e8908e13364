// SPDX-License-Identifier: Apache-2.0

package cow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of the server: no client can hold it up, and a pod's end waits for answers under way.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 20 * time.Second
	idleTimeout   = 60 * time.Second
	endTimeout    = 10 * time.Second
	unusedTimeout = time.Second
	maxHeader     = 16 << 10
)

// Handler serves a greeting:
//
//	/          the page
//	/greeting  the greeting as plain text, byte for byte
//	/cow       what the cow says in a terminal
//	/icon.svg  the picture in a browser's tab
//	/healthz   "ok", for probes
func Handler(greeting string) (http.Handler, error) {
	p, err := render(greeting)
	if err != nil {
		return nil, err
	}
	const (
		text = "text/plain; charset=utf-8"
		// Ask each time whether it changed; the answer is one line when not.
		ask = "no-cache"
	)
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", content("text/html; charset=utf-8", ask, p.html))
	mux.Handle("GET /greeting", content(text, ask, []byte(greeting)))
	mux.Handle("GET /cow", content(text, ask, []byte(Say(greeting))))
	mux.Handle("GET /icon.svg", content("image/svg+xml", "public, max-age=86400", p.icon))
	mux.Handle("GET /healthz", content(text, "no-store", []byte("ok\n")))
	return secured(p.policy, mux), nil
}

// content answers with bytes that never change, or says that the client has them.
func content(mediaType, caching string, body []byte) http.Handler {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Cache-Control", caching)
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

// secured tells browsers to let the page do only what it has to.
func secured(policy string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// Serve answers requests until the context ends, and then those under way.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
	u := &unused{connections: map[net.Conn]bool{}}
	server.ConnState = u.note
	server.RegisterOnShutdown(func() { time.AfterFunc(unusedTimeout, u.close) })
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		return errors.Join(fmt.Errorf("end the server: %w", err), server.Close())
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// unused are connections on which nothing was asked yet. Browsers open some in advance, and the
// server's end would wait five seconds for them.
type unused struct {
	mu          sync.Mutex
	connections map[net.Conn]bool
}

func (u *unused) note(connection net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if state == http.StateNew {
		u.connections[connection] = true
	} else {
		delete(u.connections, connection)
	}
}

func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for connection := range u.connections {
		_ = connection.Close()
	}
}

// Run says the greeting on out and, unless once is enough, serves it until the context ends. ready
// is called with the address that is listened on.
func Run(ctx context.Context, out io.Writer, c Config, ready func(net.Addr)) error {
	if _, err := io.WriteString(out, Say(c.Greeting)); err != nil {
		return fmt.Errorf("say the greeting: %w", err)
	}
	if c.Once {
		return nil
	}
	handler, err := Handler(c.Greeting)
	if err != nil {
		return err
	}
	var network net.ListenConfig
	listener, err := network.Listen(ctx, "tcp", fmt.Sprintf(":%d", c.Port))
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", c.Port, err)
	}
	ready(listener.Addr())
	return Serve(ctx, listener, handler)
}
