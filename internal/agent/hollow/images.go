// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"crypto/sha1" //nolint:gosec // a GNU build ID is a SHA-1 by format; nothing is protected by it
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// images plays the registry and the node's image store: an image has exactly what its carrier is
// told to take.
type images struct {
	dir    string
	params []string

	mu      sync.Mutex
	pattern *regexp.Regexp
	recipes []recipe
	ready   map[string]string // key → directory
}

func newImages(dir string, pattern *regexp.Regexp, params []string) *images {
	return &images{dir: dir, pattern: pattern, params: params, ready: map[string]string{}}
}

// serve makes all images that match exist, and no others. What nodes have pulled they keep.
func (i *images) serve(pattern string) error {
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("pattern of images: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pattern = compiled
	return nil
}

// pull returns the directory at which the image would be mounted.
func (i *images) pull(reference string, want export.Options) (string, error) {
	want.From, want.To = "", ""
	i.mu.Lock()
	defer i.mu.Unlock()
	r := i.recipeFor(reference)
	key := hash(reference, fmt.Sprintf("%+v", want), r.what, r.detail)
	if dir, ok := i.ready[key]; ok {
		return dir, nil
	}
	dir := filepath.Join(i.dir, key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make image %s: %w", reference, err)
	}
	for name, content := range i.content(reference, r, want) {
		name = filepath.Join(dir, filepath.Clean("/"+name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", fmt.Errorf("make image %s: %w", reference, err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return "", fmt.Errorf("make image %s: %w", reference, err)
		}
	}
	if strings.Contains(reference, "/host-symlink/") { // as upstream's documentation has images find the host's modules
		link := filepath.Join(dir, filepath.Clean("/"+want.DirName+"/lib/modules/"+want.Kernel), "host")
		if err := os.Symlink("/host/lib/modules/"+want.Kernel, link); err != nil {
			return "", fmt.Errorf("make image %s: %w", reference, err)
		}
	}
	i.ready[key] = dir
	return dir, nil
}

// content is the image's files: the module, what the load order puts below it, the indexes,
// firmware.
func (i *images) content(reference string, r recipe, want export.Options) map[string][]byte {
	dir := want.DirName + "/lib/modules/" + want.Kernel + "/"
	chain := want.LoadOrder
	if want.Module == "" { // rawArgs: the image has a module of its own name
		name, _, _ := strings.Cut(path.Base(reference), ":")
		want.Module = name
	}
	if !slices.Contains(chain, want.Module) {
		chain = append([]string{want.Module}, chain...)
	}
	files := map[string][]byte{}
	var index strings.Builder
	for at, name := range chain {
		var needs []string
		if at+1 < len(chain) {
			needs = chain[at+1 : at+2]
		}
		files[dir+"extra/"+name+".ko"] = i.module(reference, r, want.Kernel, name, needs)
		fmt.Fprintf(&index, "extra/%s.ko:", name)
		for _, need := range needs {
			fmt.Fprintf(&index, " extra/%s.ko", need)
		}
		index.WriteByte('\n')
	}
	files[dir+"modules.dep"] = []byte(index.String())
	if want.FirmwarePath != "" {
		files[want.FirmwarePath+"/"+want.Module+".bin"] = []byte("firmware of " + reference + "\n")
	}
	if change := contents[r.what]; change != nil {
		change(r, files, want)
	}
	return files
}

// module makes a module file. Its build ID follows from reference, name and kernel, as a build's
// would from its sources.
func (i *images) module(reference string, r recipe, kernel, name string, needs []string) []byte {
	m := synth.Module{
		Name: name, Depends: needs, BuildID: BuildID(reference, kernel, name),
		Vermagic: kernel + " SMP preempt mod_unload modversions ",
	}
	for _, p := range i.params {
		m.Params = append(m.Params, kmod.Param{Name: p, Type: "charp"})
	}
	if change := builds[r.what]; change != nil {
		change(r, &m)
	}
	return m.Bytes()
}

// BuildID is the build ID of a module in an image: for those who audit what the fake kernels hold.
func BuildID(reference, kernel, name string) string {
	id := sha1.Sum([]byte(strings.Join([]string{reference, kernel, name}, "\x00"))) //nolint:gosec // a GNU build ID by format
	return hex.EncodeToString(id[:])
}

// remove deletes all images.
func (i *images) remove() error {
	if err := os.RemoveAll(i.dir); err != nil {
		return fmt.Errorf("remove images: %w", err)
	}
	return nil
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
