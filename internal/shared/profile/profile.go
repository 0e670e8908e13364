// SPDX-License-Identifier: Apache-2.0

// Package profile serves Go's profiles of the process on a loopback address: they show where its
// time and its memory go. See https://pkg.go.dev/net/http/pprof.
package profile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"
)

// Off is the address of nowhere.
const Off = "0"

// Check refuses an address that is neither Off nor a loopback address and a port: profiles have no
// authentication, and show what the process works on.
func Check(address string) error {
	if address == Off {
		return nil
	}
	if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("%q is not a loopback address and a port, such as 127.0.0.1:6060", address)
	}
	return nil
}

// Serve serves the profiles below /debug/pprof until ctx ends. It returns at once: nil where the
// address is Off or is listened on.
func Serve(ctx context.Context, address string) error {
	if err := Check(address); address == Off || err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve profiles: %w", err)
	}
	// A profile takes as long as its reader asks for, so answers are not bounded.
	server := &http.Server{Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // who reads a profile of an end gets a part
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			_ = listener.Close() // nothing else ends with it
		}
	}()
	return nil
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
