// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// commandLimit bounds a command whose context has no deadline.
const commandLimit = 60 * time.Second

// errConsoleClosed says that the machine is gone.
var errConsoleClosed = errors.New("the console is closed: the machine has stopped")

// Console runs commands in the guest over its second serial port, on which
// nothing else writes: the kernel's messages go to the first. It reads what
// the kernel says, whatever the network and the node's software do.
type Console struct {
	conn  net.Conn
	ready chan struct{} // closed when the guest's side first answered
	gone  chan struct{} // closed when the machine has stopped

	turn sync.Mutex // one command at a time
	last int

	mu      sync.Mutex
	boot    string
	answers map[int]chan<- answer // nil when the machine has stopped
}

// answer is what the guest sent for one command.
type answer struct {
	output string
	code   int
	err    error
}

func newConsole(conn net.Conn) *Console {
	c := &Console{conn: conn, ready: make(chan struct{}), gone: make(chan struct{}), answers: map[int]chan<- answer{}}
	go c.read()
	return c
}

// Run executes a shell script in the guest as root, and returns its output,
// standard error included, and its exit code. It waits for the guest to be up
// so far. A script that runs past ctx's deadline (60 s without one) is killed
// and has exit code 137. The error says that no answer came.
func (c *Console) Run(ctx context.Context, script string) (output string, exitCode int, err error) {
	if err := c.WaitUp(ctx); err != nil {
		return "", 0, err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	limit := commandLimit
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	received := make(chan answer, 1)
	id, err := c.register(received)
	if err != nil {
		return "", 0, err
	}
	defer c.forget(id)
	seconds := max(1, int(limit.Seconds()))
	request := fmt.Sprintf("%d %d %s\n", id, seconds, base64.StdEncoding.EncodeToString([]byte(script)))
	if _, err := io.WriteString(c.conn, request); err != nil {
		return "", 0, fmt.Errorf("write to the console: %w", err)
	}
	select {
	case got := <-received:
		return got.output, got.code, got.err
	case <-ctx.Done():
		return "", 0, fmt.Errorf("wait for the command's end: %w", ctx.Err())
	}
}

// Output is Run for a script that must succeed; the output has no trailing
// line end.
func (c *Console) Output(ctx context.Context, script string) (string, error) {
	output, code, err := c.Run(ctx, script)
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fmt.Errorf("%q ended with code %d: %s", script, code, output)
	}
	return strings.TrimRight(output, "\n"), nil
}

// WaitUp waits until the guest takes commands. It fails at once when the
// machine stops before that.
func (c *Console) WaitUp(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.gone:
		return errConsoleClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for the console: %w", ctx.Err())
	}
}

// BootID is the guest's random boot ID; empty before the console is up.
func (c *Console) BootID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

func (c *Console) register(received chan<- answer) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		return 0, errConsoleClosed
	}
	c.last++
	c.answers[c.last] = received
	return c.last, nil
}

func (c *Console) forget(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, id)
}

// escapes move a terminal's cursor. UEFI firmware writes some to every serial
// port, without a line's end, before the guest says its first word.
var escapes = regexp.MustCompile(`\x1b\[[0-9;=?]*[A-Za-z]`)

// read takes lines from the guest until the machine is gone.
func (c *Console) read() {
	reader := bufio.NewReader(c.conn)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			c.close()
			return
		}
		fields := strings.Fields(escapes.ReplaceAllString(line, ""))
		switch {
		case len(fields) == 2 && fields[0] == "ready":
			c.up(fields[1])
		case len(fields) == 4 && fields[0] == "answer":
			c.deliver(fields[1], fields[2], fields[3])
		}
	}
}

func (c *Console) up(boot string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.boot == "" {
		c.boot = boot
		close(c.ready)
	}
}

// deliver hands an answer to who waits for it; one that came too late has
// nobody.
func (c *Console) deliver(id, code, packed string) {
	number, err := strconv.Atoi(id)
	if err != nil {
		return
	}
	c.mu.Lock()
	received := c.answers[number]
	delete(c.answers, number)
	c.mu.Unlock()
	if received == nil {
		return
	}
	var got answer
	if got.code, err = strconv.Atoi(code); err != nil {
		got.err = fmt.Errorf("read the exit code: %w", err)
	} else if got.output, err = unpack(packed); err != nil {
		got.err = fmt.Errorf("read the output: %w", err)
	}
	received <- got
}

func (c *Console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, received := range c.answers {
		received <- answer{err: errConsoleClosed}
	}
	c.answers = nil
	close(c.gone)
}

func unpack(packed string) (string, error) {
	content, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return "", fmt.Errorf("decode: %w", err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	output, err := io.ReadAll(reader)
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	return string(output), nil
}
