// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
)

// freePorts returns n different free TCP ports of the loopback interface. They
// can be lost to another process before use; the starter then tries again.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		// Held until all are found, so that they differ.
		defer func() { _ = listener.Close() }()
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("find a free port: odd address %v", listener.Addr())
		}
		ports = append(ports, address.Port)
	}
	return ports, nil
}
