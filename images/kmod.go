// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // the format of dpkg's lists
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-project/drover/images/sbom"
)

// KmodProgram is where an image has kmod's program. The program is modprobe and depmod in one, by
// the name it is called with.
const KmodProgram = "/usr/bin/kmod"

// distribution is the package that says which distribution it is of.
const distribution = "base-files"

// copyrights are what the licences of the programs ask to come with them, in each package's folder.
const copyrights = "*/usr/share/doc/*/copyright"

// What FetchKmod writes beside the folder of a package, and images hold in sbom.PackageDir.
const (
	controlEnding = ".control"
	listEnding    = ".md5sums"
)

// ErrNoApt says that this machine cannot fetch and unpack packages of Debian's.
var ErrNoApt = errors.New(aptHelper + " and dpkg are needed to fetch kmod, and not both are there")

// aptConfig makes apt look at one architecture in folders of its own: the machine's package lists
// stay as they are.
const aptConfig = `APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
Dir::State "%[1]s/state";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
`

// runs a program in a folder of its own, and returns what it prints.
type runs func(name string, args ...string) (string, error)

// aptFor runs apt's programs for one architecture, in a folder that it makes.
func aptFor(ctx context.Context, work, arch string) (runs, error) {
	for _, folder := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(work, folder), 0o755); err != nil {
			return nil, fmt.Errorf("lay out a folder for apt: %w", err)
		}
	}
	config := filepath.Join(work, "apt.conf")
	err := errors.Join(os.WriteFile(filepath.Join(work, "status"), nil, 0o644),
		os.WriteFile(config, fmt.Appendf(nil, aptConfig, work, arch), 0o644))
	if err != nil {
		return nil, fmt.Errorf("lay out a folder for apt: %w", err)
	}
	return runIn(ctx, work, "APT_CONFIG="+config), nil
}

func runIn(ctx context.Context, dir string, env ...string) runs {
	return func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "LC_ALL=C"), env...)
		var said bytes.Buffer
		cmd.Stderr = &said
		output, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said.String())
		}
		return string(output), nil
	}
}

// FetchKmod unpacks kmod for arch, with the packages that it depends on, into dir, each into a
// folder of its name. Exactly the packages of [LockFile] are fetched, by their digests, whatever
// this machine's distribution is. Nothing of them runs.
func FetchKmod(ctx context.Context, dir, arch string) (err error) {
	pins, snapshot, err := pinned(lock)
	if err != nil {
		return err
	}
	pins = slices.DeleteFunc(pins, func(p pin) bool { return p.arch != arch })
	if len(pins) == 0 {
		return fmt.Errorf("%s names no packages for %s", LockFile, arch)
	}
	for _, program := range []string{aptHelper, "dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return ErrNoApt
		}
	}
	work, err := os.MkdirTemp("", "drover-kmod-")
	if err != nil {
		return fmt.Errorf("fetch kmod: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for i := range pins {
		file := filepath.Join(work, path.Base(pins[i].path))
		if err := pins[i].download(ctx, cmp.Or(os.Getenv(SourcesVariable), sources), snapshot, file); err != nil {
			return err
		}
		if err := unpack(runIn(ctx, work), file, dir); err != nil {
			return err
		}
	}
	return writeLists(dir)
}

// unpack puts a package's files into a folder of its name, and what the package says of itself
// beside it.
func unpack(run runs, file, dir string) error {
	name, err := run("dpkg-deb", "-f", file, "Package")
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, strings.TrimSpace(name))
	control, err := run("dpkg-deb", "-f", file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
	}
	if err := os.WriteFile(folder+controlEnding, []byte(control), 0o644); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
	}
	_, err = run("dpkg", "-x", file, folder)
	return err
}

// packageOf is the package that a file in dir was unpacked from.
func packageOf(dir, file string) (string, error) {
	below, err := filepath.Rel(dir, file)
	if err != nil {
		return "", fmt.Errorf("find the package of a file: %w", err)
	}
	name, _, _ := strings.Cut(filepath.ToSlash(below), "/")
	return name, nil
}

// writeLists writes for each package which files of it an image has, with their sums, as dpkg lists
// files.
func writeLists(dir string) error {
	files, err := linkedFiles(dir)
	if err != nil {
		return err
	}
	lists := map[string]*strings.Builder{}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		name, err := packageOf(dir, files[target])
		if err != nil {
			return err
		}
		content, err := os.ReadFile(files[target])
		if err != nil {
			return fmt.Errorf("list a package's files: %w", err)
		}
		if lists[name] == nil {
			lists[name] = &strings.Builder{}
		}
		fmt.Fprintf(lists[name], "%x  %s\n", md5.Sum(content), strings.TrimPrefix(target, "/")) //nolint:gosec // the format of dpkg's lists
	}
	for name, list := range lists {
		if err := os.WriteFile(filepath.Join(dir, name+listEnding), []byte(list.String()), 0o644); err != nil {
			return fmt.Errorf("list a package's files: %w", err)
		}
	}
	return nil
}

// depends are the packages that a record of apt's names as needed, first alternatives only.
func depends(record string) []string {
	var names []string
	for line := range strings.Lines(record) {
		list, ok := strings.CutPrefix(line, "Depends:")
		if !ok {
			continue
		}
		for one := range strings.SplitSeq(list, ",") {
			one, _, _ = strings.Cut(one, "|")
			if fields := strings.Fields(one); len(fields) > 0 {
				names = append(names, fields[0])
			}
		}
	}
	return names
}

// KmodFiles are the files of an image, local file by path in the image, that make kmod run in it:
// the program, the libraries that it is linked with, their loader, their copyright files, and which
// packages they are from. dir is what FetchKmod has filled.
func KmodFiles(dir string) (map[string]string, error) {
	files, err := linkedFiles(dir)
	if err != nil {
		return nil, err
	}
	lists, err := filepath.Glob(filepath.Join(dir, "*"+listEnding))
	if err != nil {
		return nil, fmt.Errorf("find the packages: %w", err)
	}
	for _, list := range lists {
		name := strings.TrimSuffix(filepath.Base(list), listEnding)
		files[path.Join(sbom.PackageDir, name)] = filepath.Join(dir, name+controlEnding)
		files[path.Join(sbom.PackageDir, name+listEnding)] = list
	}
	return files, nil
}

// linkedFiles are those of KmodFiles that packages hold.
func linkedFiles(dir string) (map[string]string, error) {
	known, err := byName(dir)
	if err != nil {
		return nil, err
	}
	program, ok := known["kmod"]
	if !ok {
		return nil, fmt.Errorf("%s has no kmod", dir)
	}
	files := map[string]string{KmodProgram: program}
	// By it, scanners know of which distribution the packages are.
	if local := filepath.Join(dir, distribution, sbom.OSRelease); regular(local) {
		files[sbom.OSRelease] = local
	}
	open := []string{program}
	for len(open) > 0 {
		needs, loader, err := linkedWith(open[0])
		if err != nil {
			return nil, err
		}
		open = open[1:]
		for _, library := range needs {
			local, ok := known[library]
			if !ok {
				return nil, fmt.Errorf("kmod needs %s, which is in none of its packages", library)
			}
			// The loader looks there without being told.
			target := path.Join("/usr/lib", library)
			if files[target] == "" {
				files[target] = local
				open = append(open, local)
			}
		}
		if loader != "" {
			local, ok := known[path.Base(loader)]
			if !ok {
				return nil, fmt.Errorf("kmod needs %s, which is in none of its packages", loader)
			}
			files[loader] = local
		}
	}
	texts, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(copyrights)))
	if err != nil {
		return nil, fmt.Errorf("find the copyright files: %w", err)
	}
	for _, text := range texts {
		if !regular(text) {
			continue // a link to another package's
		}
		files[path.Join("/usr/share/doc", filepath.Base(filepath.Dir(text)), "copyright")] = text
	}
	return files, nil
}

func regular(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular()
}

// linkedWith reads which libraries a program or library needs, and which loader a program names.
func linkedWith(file string) (needs []string, loader string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if needs, err = f.ImportedLibraries(); err != nil {
		return nil, "", fmt.Errorf("read %s: %w", file, err)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return nil, "", fmt.Errorf("read %s: %w", file, err)
		}
		loader = string(bytes.TrimRight(name, "\x00"))
	}
	return needs, loader, nil
}

// byName finds the programs and libraries of unpacked packages by their file names, links by what
// they lead to. Links may be absolute, so they are followed by name only: none leads out of the
// packages.
func byName(dir string) (map[string]string, error) {
	found, links := map[string]string{}, map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		base := filepath.Base(name)
		inBin := slices.Contains([]string{"bin", "sbin"}, filepath.Base(filepath.Dir(name)))
		isLibrary := strings.Contains(base, ".so")
		switch {
		case err != nil:
			return err
		case !inBin && !isLibrary:
		case entry.Type().IsRegular():
			found[base] = name
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			links[base] = filepath.Base(target)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look through %s: %w", dir, err)
	}
	for _, link := range slices.Sorted(maps.Keys(links)) {
		target := link
		for range len(links) { // chains of links end, at the latest, after all of them
			if next, ok := links[target]; ok {
				target = next
			}
		}
		if file, ok := found[target]; ok && found[link] == "" {
			found[link] = file
		}
	}
	return found, nil
}
