// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// monitor is QEMU's control connection, in its JSON protocol (QMP).
type monitor struct {
	conn   net.Conn
	reader *bufio.Reader
	mu     sync.Mutex
}

// monitorTimeout bounds one command. QEMU answers at once where the machine has time for it, and
// one that has ended closes the connection.
const monitorTimeout = 2 * time.Minute

// newMonitor waits for the greeting and leaves the negotiation mode.
func newMonitor(conn net.Conn) (*monitor, error) {
	m := &monitor{conn: conn, reader: bufio.NewReader(conn)}
	if err := conn.SetDeadline(time.Now().Add(monitorTimeout)); err != nil {
		return nil, fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := m.reader.ReadBytes('\n'); err != nil {
		return nil, fmt.Errorf("read the monitor's greeting: %w", err)
	}
	if err := m.execute(context.Background(), "qmp_capabilities", map[string]any{}); err != nil {
		return nil, err
	}
	return m, nil
}

// execute runs one command and waits for its result. Events in between are
// passed over.
func (m *monitor) execute(ctx context.Context, command string, arguments map[string]any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	deadline := time.Now().Add(monitorTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	if err := m.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return fmt.Errorf("write monitor command %s: %w", command, err)
	}
	if _, err := m.conn.Write(append(request, '\n')); err != nil {
		return fmt.Errorf("write monitor command %s: %w", command, err)
	}
	for {
		line, err := m.reader.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("read the result of monitor command %s: %w", command, err)
		}
		var reply struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(line, &reply); err != nil {
			return fmt.Errorf("read the result of monitor command %s: %w", command, err)
		}
		if reply.Error != nil {
			return fmt.Errorf("monitor command %s: %s", command, reply.Error.Desc)
		}
		if reply.Return != nil {
			return nil
		}
	}
}
