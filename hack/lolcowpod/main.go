// SPDX-License-Identifier: Apache-2.0

// Command lolcowpod is what a kubelet has to know to run a cow here, for test/web.
//
//	lolcowpod container GREETING   prints the container of the Deployment that the LolCow operator wants, as JSON
//	lolcowpod image DIR            makes the image, unpacks it into DIR and prints its configuration, as JSON
package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/operators/lolcow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lolcowpod:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "container":
		return printContainer(args[1])
	case len(args) == 2 && args[0] == "image":
		return printImage(ctx, args[1])
	default:
		return errors.New("usage: lolcowpod container GREETING | lolcowpod image DIR")
	}
}

func printContainer(greeting string) error {
	children, err := lolcow.Desired(&api.Lolcow{ObjectMeta: metav1.ObjectMeta{Name: "lolcow-sample"},
		Spec: api.LolcowSpec{Greeting: greeting}})
	if err != nil {
		return err
	}
	for _, child := range children {
		if deployment, ok := child.(*appsv1.Deployment); ok && len(deployment.Spec.Template.Spec.Containers) == 1 {
			return json.NewEncoder(os.Stdout).Encode(deployment.Spec.Template.Spec.Containers[0])
		}
	}
	return errors.New("the operator wants no Deployment with one container")
}

func printImage(ctx context.Context, dir string) error {
	program, err := images.Find("lolcow")
	if err != nil {
		return err
	}
	output, err := os.MkdirTemp("", "lolcowpod-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(output) }()
	image, err := images.Builder{Repository: ".", Output: output, Version: "dev"}.Image(ctx, program, runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := unpack(image, dir); err != nil {
		return fmt.Errorf("unpack the image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(config.Config)
}

// unpack writes an image's files into a folder.
func unpack(image v1.Image, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	for archive := tar.NewReader(flat); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := write(root, entry, archive); err != nil {
			return fmt.Errorf("%s: %w", entry.Name, err)
		}
	}
}

func write(root *os.Root, entry *tar.Header, content io.Reader) error {
	name := filepath.Clean(filepath.Join(".", entry.Name))
	switch entry.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
	default:
		return fmt.Errorf("type %q is neither a file nor a folder", entry.Typeflag)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, entry.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
