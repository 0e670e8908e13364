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
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/internal/kmod"
)

// AwaitLive returns as soon as the module is live or built in, seen through sys (usually /sys).
func AwaitLive(ctx context.Context, sys, name string) error {
	dir := filepath.Join(sys, "module", kmod.NormalizeName(name))
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("look for module %s: %w", name, err)
		}
		state, err := os.ReadFile(filepath.Join(dir, "initstate"))
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
	})
	if err != nil {
		return fmt.Errorf("wait for module %s: %w", name, err)
	}
	return nil
}
