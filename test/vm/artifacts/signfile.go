// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// SignFile returns the path of the kernel's own program to sign modules, sign-file, from Debian's
// package of a kernel's build tools. It needs openssl's library, which the package openssl brings.
func (c *Cache) SignFile(ctx context.Context) (string, error) {
	meta := "linux-headers-" + runtime.GOARCH // Debian calls the common ones as Go does
	dir, err := c.Entry(ctx, "sign-file", []string{"1", meta}, func(ctx context.Context, dir string) error {
		return fetchBuildTools(ctx, dir, meta)
	})
	if err != nil {
		return "", err
	}
	programs, err := filepath.Glob(filepath.Join(dir, "usr", "lib", "linux-kbuild-*", "scripts", "sign-file"))
	if err != nil || len(programs) != 1 {
		return "", errors.Join(errors.New("the package of the kernel's build tools holds no single sign-file"), err)
	}
	return programs[0], nil
}

// fetchBuildTools unpacks the linux-kbuild package that the newest headers depend on.
func fetchBuildTools(ctx context.Context, dir, meta string) error {
	var debian packages
	headers, err := debian.dependencies(ctx, meta)
	if err != nil {
		if err := debian.update(ctx); err != nil {
			return err
		}
		if headers, err = debian.dependencies(ctx, meta); err != nil {
			return err
		}
	}
	parts, err := debian.dependencies(ctx, headers[0])
	if err != nil {
		return err
	}
	for _, name := range parts {
		if strings.HasPrefix(name, "linux-kbuild-") {
			return debian.unpack(ctx, dir, name)
		}
	}
	return fmt.Errorf("%s depends on no package of build tools", headers[0])
}
