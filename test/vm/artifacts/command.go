// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// command is one call of a host tool.
type command struct {
	dir  string
	env  []string
	name string
	args []string
}

// run executes the command and returns its standard output. The error holds
// the end of what it wrote to standard error.
func (c command) run(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", c.name, strings.Join(c.args, " "), err, tail(stderr.String()+stdout.String(), 2000))
	}
	return stdout.String(), nil
}

// tail is the last n bytes of text, from the start of a line where possible.
func tail(text string, n int) string {
	text = strings.TrimSpace(text)
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	if _, rest, found := strings.Cut(text, "\n"); found {
		return rest
	}
	return text
}
