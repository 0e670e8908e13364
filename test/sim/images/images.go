// SPDX-License-Identifier: Apache-2.0

// Package images says what the images of histories hold: for each kernel module, four images, each
// with a build for every kernel.
package images

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing/fstest"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const (
	// Each is how many images a kernel module has.
	Each   = 4
	prefix = "registry.example/"
)

// Names are the kernel modules that Modules load; Own are those of the kernels themselves.
var (
	Names = []string{"nic", "aux"}
	Own   = []string{"stock", "other"}
)

// Releases are the kernels that nodes boot, the usual one first.
var Releases = []string{"6.1.0-1-test", "6.12.0-1-test"}

// Of is a kernel module's image of a number.
func Of(module string, a uint8) string { return fmt.Sprint(prefix, module, ":", a%Each) }

// Module is the kernel module in an image.
func Module(image string) string {
	module, _, _ := strings.Cut(strings.TrimPrefix(image, prefix), ":")
	return module
}

// Short is the number in an image's name.
func Short(image string) string { return image[strings.LastIndex(image, ":")+1:] }

// Content is the file in an image that is for a kernel; nil: there is none.
func Content(image, release string) []byte { return builds().files[image+" "+release] }

// ReleaseOf is the kernel that the build of an ID is for; empty: there is no such build.
func ReleaseOf(id string) string { return builds().releases[id] }

// OfBuild is the image that has the build of an ID; empty: none.
func OfBuild(id string) string { return builds().images[id] }

// Trees are the folders of the kernels' own modules.
var Trees = sync.OnceValue(func() map[string]fs.FS {
	all := map[string]fs.FS{}
	for _, release := range Releases {
		tree := fstest.MapFS{}
		for _, own := range Own {
			tree["kernel/drivers/"+own+".ko"] = &fstest.MapFile{Data: OwnContent(own, release), Mode: 0o644}
		}
		all[release] = tree
	}
	return all
})

// OwnContent is the file of one of a kernel's own modules.
func OwnContent(module, release string) []byte {
	own := synth.Module{Name: module, Vermagic: vermagic(release), InTree: true}
	return own.Bytes()
}

func vermagic(release string) string { return release + " SMP mod_unload" }

// Whole says whether a file is one of those that there are, as a whole.
func Whole(content []byte) bool { return builds().whole[string(content)] }

type made struct {
	whole    map[string]bool
	files    map[string][]byte // by image and kernel
	images   map[string]string // by build ID
	releases map[string]string // by build ID
}

var builds = sync.OnceValue(func() made {
	all := made{map[string]bool{}, map[string][]byte{}, map[string]string{}, map[string]string{}}
	for _, release := range Releases {
		for _, own := range Own {
			all.whole[string(OwnContent(own, release))] = true
		}
	}
	for _, module := range Names {
		for a := range uint8(Each) {
			for _, release := range Releases {
				image := Of(module, a)
				content := synth.Module{Name: module, Version: image, Vermagic: vermagic(release)}.Bytes()
				info, err := kmod.Read(content)
				if err != nil {
					panic(err) // what was made cannot be read
				}
				all.whole[string(content)] = true
				all.files[image+" "+release], all.images[info.BuildID], all.releases[info.BuildID] = content, image, release
			}
		}
	}
	return all
})
