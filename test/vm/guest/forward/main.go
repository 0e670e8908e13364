// SPDX-License-Identifier: Apache-2.0

// Command forward copies TCP connections from one address to another, which may be a Unix socket.
// In the guest it stands in for kube-proxy's rule of the kubernetes Service: it listens on the
// Service's address and connects to the API server.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: forward LISTEN-ADDRESS TARGET-ADDRESS")
		os.Exit(2)
	}
	if err := forward(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "forward:", err)
		os.Exit(1)
	}
}

func forward(from, to string) error {
	address, err := net.ResolveTCPAddr("tcp", from)
	if err != nil {
		return fmt.Errorf("read the address: %w", err)
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	for {
		client, err := listener.AcceptTCP()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go serve(client, to)
	}
}

// peer is a connection that can be closed for writing alone.
type peer interface {
	net.Conn
	CloseWrite() error
}

// dial connects to an address, or to "unix:" and the path of a socket.
func dial(to string) (peer, error) {
	if path, ok := strings.CutPrefix(to, "unix:"); ok {
		return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	}
	address, err := net.ResolveTCPAddr("tcp", to)
	if err != nil {
		return nil, err
	}
	return net.DialTCP("tcp", nil, address)
}

// serve copies both ways until both sides are done. A failure shows to both
// peers as a closed connection, which is all a TCP relay can say.
func serve(client *net.TCPConn, to string) {
	defer func() { _ = client.Close() }()
	server, err := dial(to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.CloseWrite()
	<-done
}
