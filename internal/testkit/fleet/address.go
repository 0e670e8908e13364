// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports that FreeAddress chooses from: below those that Linux gives to connections (32768 and up,
// unless net.ipv4.ip_local_port_range says otherwise). A port that listening on 0 gave could be a
// connection's by the time a program listens on it.
const (
	firstPort, ports = 20000, 12000
	maxPorts         = 100
)

// FreeAddress is one of the loopback interface that nobody listens on.
func FreeAddress() (string, error) {
	var last error
	for range maxPorts {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(ports)))) //nolint:gosec // no secret
		if err != nil {
			last = err
			continue
		}
		return l.Addr().String(), l.Close()
	}
	return "", fmt.Errorf("find a free port: %w", last)
}
