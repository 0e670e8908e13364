// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DKMS is the source of a *-dkms package and how it is compiled.
type DKMS struct {
	// Dir holds the source, with the package's patches for the kernel applied.
	Dir string
	// Modules are the names of the kernel modules, the file's without its ending.
	Modules []string
	// Script compiles in a shell, in a folder with the source.
	Script string
}

// readConfig prints what dkms.conf, which is a program, says for a kernel. $1 is its folder, $2 the
// kernel, $3 the header tree.
const readConfig = `kernelver=$2 kernel_source_dir=$3 arch=x86_64 dkms_tree=/var/lib/dkms source_tree=/usr/src
. "$1/dkms.conf" >/dev/null
for i in "${!BUILT_MODULE_NAME[@]}"; do echo "module ${BUILT_MODULE_NAME[$i]}"; done
[ ${#BUILT_MODULE_NAME[@]} -gt 0 ] || echo "module $PACKAGE_NAME"
for i in "${!PATCH[@]}"; do if [[ $kernelver =~ ${PATCH_MATCH[$i]:-.} ]]; then echo "patch ${PATCH[$i]}"; fi; done
[ -z "$PRE_BUILD" ] || echo "pre "${PRE_BUILD//$'\n'/ }
echo "make ${MAKE[0]:-make -C $kernel_source_dir M=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build}"
echo "tree $dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build"`

// DKMS unpacks one of Debian's *-dkms packages. headers is where the kernel's header tree will be,
// and build the folder with the source.
func (c *Cache) DKMS(ctx context.Context, name, release, headers, build string) (*DKMS, error) {
	if err := ensurePackages(ctx, "bash", "patch"); err != nil {
		return nil, err
	}
	root, err := c.Entry(ctx, "dkms-"+name, []string{"1", release}, func(ctx context.Context, dir string) error {
		if err := (packages{}).unpack(ctx, dir, name); err != nil {
			return err
		}
		source, err := sourceOf(dir)
		if err != nil {
			return err
		}
		facts, err := configOf(ctx, source, release, headers)
		if err != nil {
			return err
		}
		for _, patch := range facts["patch"] {
			if _, err := (command{dir: source, name: "patch", args: []string{"-p1", "-i", filepath.Join("patches", patch)}}).run(ctx); err != nil {
				return fmt.Errorf("apply the package's patch %s: %w", patch, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	source, err := sourceOf(root)
	if err != nil {
		return nil, err
	}
	return describe(ctx, source, release, headers, build)
}

// describe says how a source is compiled. Of several commands it takes the first, MAKE[0]; no
// package of Debian 12 has more.
func describe(ctx context.Context, source, release, headers, build string) (*DKMS, error) {
	facts, err := configOf(ctx, source, release, headers)
	if err != nil {
		return nil, err
	}
	// As dkms itself calls it: a make that is not the first word stays as it is.
	compile := facts["make"][0]
	if rest, plain := strings.CutPrefix(compile, "make"); plain {
		compile = "make KERNELRELEASE=" + release + rest
	}
	if len(facts["pre"]) > 0 {
		compile = "sh ./" + facts["pre"][0] + " && " + compile
	}
	return &DKMS{Dir: source, Modules: facts["module"], Script: strings.ReplaceAll(compile, facts["tree"][0], build)}, nil
}

// sourceOf is the package's source folder.
func sourceOf(root string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, "usr", "src", "*", "dkms.conf"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(fmt.Errorf("%d files dkms.conf instead of one", len(found)), err)
	}
	return filepath.Dir(found[0]), nil
}

func configOf(ctx context.Context, source, release, headers string) (map[string][]string, error) {
	output, err := command{name: "bash", args: []string{"-c", readConfig, "read", source, release, headers}}.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("read dkms.conf: %w", err)
	}
	facts := map[string][]string{}
	for line := range strings.Lines(output) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		facts[key] = append(facts[key], value)
	}
	if len(facts["make"]) != 1 || len(facts["tree"]) != 1 {
		return nil, fmt.Errorf("dkms.conf says %q", output)
	}
	return facts, nil
}

// HeaderPackages are the files of the packages with a kernel's headers: its own, those of all
// flavours, and the build tools.
func (c *Cache) HeaderPackages(ctx context.Context, release string) ([]string, error) {
	dir, err := c.Entry(ctx, "headers-"+release, []string{"1"}, func(ctx context.Context, dir string) error {
		var debian packages
		own := "linux-headers-" + release
		parts, err := debian.dependencies(ctx, own)
		if err != nil {
			return err
		}
		wanted := []string{own}
		for _, part := range parts {
			if strings.HasPrefix(part, "linux-headers-") || strings.HasPrefix(part, "linux-kbuild-") {
				wanted = append(wanted, part)
			}
		}
		_, err = debian.fetch(ctx, dir, wanted...)
		return err
	})
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	var files []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".deb") {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	return files, nil
}
