// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/internal/kmod"
)

// AwaitReady returns as soon as the module is live or built in, and all probes find what they look for.
func (p *Prober) AwaitReady(ctx context.Context, module string, probes []Probe) error {
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		live, err := isLive(p.Sys, module)
		for i := 0; live && i < len(probes); i++ {
			live, _ = p.Look(probes[i])
		}
		return live, err
	})
	if err != nil {
		return fmt.Errorf("wait for module %s: %w", module, err)
	}
	return nil
}

// isLive tells whether the module is live or built in, seen through sys.
func isLive(sys, name string) (bool, error) {
	dir := filepath.Join(sys, "module", kmod.NormalizeName(name))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for module %s: %w", name, err)
	}
	state, err := os.ReadFile(filepath.Join(dir, "initstate"))
	if errors.Is(err, syscall.ENODEV) {
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) { // built in, or going away at this moment
		_, err := os.Stat(filepath.Join(dir, "parameters"))
		if err != nil {
			_, err = os.Stat(filepath.Join(dir, "uevent"))
		}
		return err == nil, nil
	}
	if err != nil {
		return false, fmt.Errorf("state of module %s: %w", name, err)
	}
	return strings.TrimSpace(string(state)) == string(StateLive), nil
}
