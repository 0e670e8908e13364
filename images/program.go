// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// modulePath is the Go module that the programs belong to.
const modulePath = "github.com/drover-project/drover"

// SourceURL is where the sources of the programs are.
const SourceURL = "https://" + modulePath

// Program is a program of this repository that has an image.
type Program struct {
	// Name of the image.
	Name string
	// Package is the folder of its main package, from the repository's root.
	Package string
	// Beside are main packages whose programs lie in the same folder.
	Beside []string
	// User of the image, "uid:gid".
	User string
	// Description, for people who look at the image.
	Description string
	// Kmod: the program runs kmod's modprobe.
	Kmod bool
	// Project: the program is that of another repository, a device operator's, whose main package is
	// at the root. The image's labels say nothing of its licence and its source.
	Project bool
}

// Project is a device operator's program.
func Project(name string) Program {
	return Program{Name: name, Package: ".", User: nobody, Description: name, Project: true}
}

// programPath is where the program of a main package is in an image.
func (p Program) programPath(pkg string) string {
	return "/usr/local/bin/" + p.programName(pkg)
}

func (p Program) programName(pkg string) string {
	if pkg == "." {
		return p.Name
	}
	return path.Base(pkg)
}

// nobody is the user of every image that does not need to be root.
const nobody = "65532:65532"

// Programs are all that have an image.
var Programs = []Program{
	{
		Name: "drover-operator", Package: "cmd/drover-operator", User: nobody,
		Description: "The cluster side of Drover",
	},
	{
		// Its DaemonSet sets user 0; carriers and plugin pods run it as it is.
		Name: "drover-agent", Package: "cmd/drover-agent", Beside: []string{"cmd/drover-kcall"}, User: nobody,
		Description: "The node side of Drover", Kmod: true,
	},
	{
		Name: "drover-signer", Package: "cmd/drover-signer", User: nobody,
		Description: "The steps of making a kernel module image",
	},
	{
		Name: "deviceconfig-operator", Package: "cmd/deviceconfig-operator", User: nobody,
		Description: "Device operator of DeviceConfigs",
	},
	{
		Name: "lolcow-operator", Package: "cmd/lolcow-operator", User: nobody,
		Description: "Operator of Lolcows",
	},
	{
		Name: "ptemplate-operator", Package: "cmd/ptemplate-operator", User: nobody,
		Description: "Device operator of Ptemplates",
	},
	{
		// The kubelet's socket folder belongs to root; no capability is needed.
		Name: "sample-device-plugin", Package: "samples/deviceplugin", User: "0:0",
		Description: "Sample device plugin that offers device nodes by pattern",
	},
	{
		// The kubelet's plugin folders belong to root; no capability is needed.
		Name: "sample-dra-driver", Package: "samples/dradriver", User: "0:0",
		Description: "Sample DRA driver that offers device nodes by pattern",
	},
	{
		Name: "sample-reader", Package: "samples/reader", User: nobody,
		Description: "Sample consumer that prints what a device holds",
	},
	{
		Name: "sample-consumer", Package: "samples/consumer", User: nobody,
		Description: "Sample consumer that uses the devices that it was allocated",
	},
	{
		Name: "lolcow", Package: "cmd/lolcow", User: nobody,
		Description: "A cow that says a greeting, in the terminal and on a web page",
	},
	{
		Name: "pause", Package: "images/pause", User: nobody,
		Description: "Holds the namespaces of a pod",
	},
}

// Find returns the program whose image has this name.
func Find(name string) (Program, error) {
	known := make([]string, 0, len(Programs))
	for _, program := range Programs {
		if program.Name == name {
			return program, nil
		}
		known = append(known, program.Name)
	}
	return Program{}, fmt.Errorf("no image %q; there are %s", name, strings.Join(known, ", "))
}

// Builder compiles programs and makes their images.
type Builder struct {
	// Repository is the root of this repository's checkout.
	Repository string
	// Output is the folder for compiled programs; one subfolder per platform.
	Output string
	// Version is linked into the programs and written into the images' labels.
	Version string
	// Kmod are folders that FetchKmod has filled, by processor. Images of programs that run modprobe
	// are made without it where there is none.
	Kmod map[string]string
}

// Image compiles a program, and those beside it, for linux on arch and makes its image.
func (b Builder) Image(ctx context.Context, program Program, arch string) (v1.Image, error) {
	binaries := map[string]string{}
	for _, pkg := range append([]string{program.Package}, program.Beside...) {
		binary, err := b.compile(ctx, pkg, program.programName(pkg), "linux", arch)
		if err != nil {
			return nil, err
		}
		binaries[program.programPath(pkg)] = binary
	}
	if dir := b.Kmod[arch]; program.Kmod && dir != "" {
		more, err := KmodFiles(dir)
		if err != nil {
			return nil, fmt.Errorf("image %s for %s: %w", program.Name, arch, err)
		}
		maps.Copy(binaries, more)
	}
	image, err := programImage(program, binaries, arch, b.Version)
	if err != nil {
		return nil, fmt.Errorf("image %s for %s: %w", program.Name, arch, err)
	}
	return image, nil
}

// BuildBinary compiles a main package, named by its folder from the repository's root, without cgo,
// and returns the program's path. The same sources, version and Go release give the same bytes.
// What the compiler says is part of the error.
func (b Builder) BuildBinary(ctx context.Context, pkg, goos, goarch string) (string, error) {
	return b.compile(ctx, pkg, path.Base(pkg), goos, goarch)
}

func (b Builder) compile(ctx context.Context, pkg, name, goos, goarch string) (string, error) {
	output, err := filepath.Abs(filepath.Join(b.Output, goos+"-"+goarch, name))
	if err != nil {
		return "", fmt.Errorf("path of the program: %w", err)
	}
	flags := fmt.Sprintf("-s -w -buildid= -X main.version=%[1]s -X %[2]s/internal/shared/version.Version=%[1]s", b.Version, modulePath)
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", output, "./"+pkg)
	command.Dir = b.Repository
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	if said, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s for %s/%s: %w\n%s", pkg, goos, goarch, err, said)
	}
	return output, nil
}
