// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"net"
	"net/netip"
	"testing"
)

// TestFreeAddress: a program can listen on it, and no connection is given it meanwhile.
func TestFreeAddress(t *testing.T) {
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() || at.Port() < firstPort || at.Port() >= firstPort+ports {
		t.Fatalf("%s, %v", address, err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
