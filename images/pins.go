// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// LockFile says, from the repository's root, exactly which packages the agent's image has files of.
const LockFile = "images/kmod.lock"

//go:embed kmod.lock
var lock string

// SourcesVariable names other places to fetch packages from: addresses separated by spaces, in
// which {archive} (debian or debian-security), {snapshot} (a time) and {path} are filled in.
const SourcesVariable = "DROVER_DEBIAN_SOURCES"

// sources are asked in this order. A mirror is faster, and drops what a newer version has replaced;
// the snapshots keep everything. Both are believed only by the digest.
const sources = "http://deb.debian.org/{archive}/{path} https://snapshot.debian.org/archive/{archive}/{snapshot}/{path}"

// pin is one package, for one processor.
type pin struct {
	arch, name, version, sha256, archive, path string
}

// pinned reads a lock file.
func pinned(text string) (pins []pin, snapshot string, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		switch cells := strings.Split(line, "\t"); {
		case len(cells) == 2 && cells[0] == "snapshot":
			snapshot = cells[1]
		case len(cells) == 6 && len(cells[3]) == 2*sha256.Size && filepath.IsLocal(cells[5]):
			pins = append(pins, pin{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]})
		default:
			return nil, "", fmt.Errorf("%s: not a package: %q", LockFile, line)
		}
	}
	if snapshot == "" {
		return nil, "", fmt.Errorf("%s names no snapshot", LockFile)
	}
	return pins, snapshot, nil
}

// addresses of a package, the first to try first.
func (p *pin) addresses(templates, snapshot string) []string {
	fill := strings.NewReplacer("{archive}", p.archive, "{snapshot}", snapshot, "{path}", p.path)
	return strings.Fields(fill.Replace(templates))
}

// aptHelper fetches a file as apt does, with its proxies, and compares the digest.
const aptHelper = "/usr/lib/apt/apt-helper"

// download fetches a package from the first place that has it.
func (p *pin) download(ctx context.Context, templates, snapshot, file string) error {
	var errs []error
	for _, address := range p.addresses(templates, snapshot) {
		command := exec.CommandContext(ctx, aptHelper, "-o", "Acquire::Retries=1", "download-file", address, file, "SHA256:"+p.sha256)
		command.Env = append(os.Environ(), "LC_ALL=C")
		said, err := command.CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", address, err, failures(said)))
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("fetch %s %s: %w", p.name, p.version, err)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != p.sha256 {
			return fmt.Errorf("fetch %s %s: %s has the digest %s instead of %s", p.name, p.version, address, sum, p.sha256)
		}
		return nil
	}
	return fmt.Errorf("fetch %s %s (%s names other places): %w", p.name, p.version, SourcesVariable, errors.Join(errs...))
}

// failures are the lines in which apt says what went wrong.
func failures(said []byte) []byte {
	var kept [][]byte
	for line := range bytes.Lines(said) {
		if bytes.HasPrefix(line, []byte("E:")) || bytes.HasPrefix(line, []byte("   ")) {
			kept = append(kept, bytes.TrimSpace(line))
		}
	}
	return bytes.Join(kept, []byte("; "))
}

// lockHead begins a lock file.
const lockHead = `# Packages of which the agent's image holds files: kmod, what it is linked with, and base-files for its os-release. "make pin-kmod"
# writes this file, from what apt has verified. Columns: processor, package, version, SHA-256, archive, and path there.
snapshot	%s
`

// oneField finds the value of a field in records of apt's.
func oneField(record, name string) string {
	found := regexp.MustCompile(`(?m)^` + name + `: (.*)$`).FindStringSubmatch(record)
	if found == nil {
		return ""
	}
	return found[1]
}

// Pin makes the text of a lock file: the newest packages of this machine's distribution, which must
// be Debian, for each processor.
func Pin(ctx context.Context, now time.Time, archs ...string) (text string, err error) {
	if !bytes.Contains(osRelease(), []byte("\nID=debian\n")) {
		return "", errors.New("pin packages on Debian: the images are of its packages, and apt must know its keys")
	}
	work, err := os.MkdirTemp("", "drover-pin-")
	if err != nil {
		return "", fmt.Errorf("pin packages: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	text = fmt.Sprintf(lockHead, now.UTC().Format("20060102T150405Z"))
	for _, arch := range archs {
		apt, err := aptFor(ctx, filepath.Join(work, arch), arch)
		if err != nil {
			return "", err
		}
		if _, err := apt("apt-get", "-q", "update"); err != nil {
			return "", err
		}
		kmod, err := apt("apt-cache", "show", "--no-all-versions", "kmod")
		if err != nil {
			return "", err
		}
		for _, name := range append([]string{"base-files", "kmod"}, depends(kmod)...) {
			record, err := apt("apt-cache", "show", "--no-all-versions", name)
			if err != nil {
				return "", err
			}
			archive, file := "debian", oneField(record, "Filename")
			if strings.HasPrefix(file, "pool/updates/") {
				archive = "debian-security"
			}
			text += strings.Join([]string{arch, name, oneField(record, "Version"), oneField(record, "SHA256"), archive, file}, "\t") + "\n"
		}
	}
	_, _, err = pinned(text)
	return text, err
}

func osRelease() []byte {
	content, err := os.ReadFile("/usr/lib/os-release")
	if err != nil {
		return nil
	}
	return content
}
