// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/store"
)

// runAgent runs the real agent over the fake kernel, with the parts that it has on a real node.
func (n *node) runAgent(ctx context.Context, state string, held *store.Store) (err error) {
	stage, err := n.openFirmware()
	if err != nil {
		return err
	}
	dir := filepath.Join(n.dir, "fuse")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	burns, err := fuse.Open(dir, false)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	defer func() { err = errors.Join(err, burns.Close()) }()
	a, err := agent.New(agent.Options{
		NodeName: n.name, StateDir: state, Config: n.config, Host: n.kernel, Modprobe: n.kernel, Store: held, NoSync: true, Clock: n.clock,
		Firmware: stage, Fuse: burns,
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
