// SPDX-License-Identifier: Apache-2.0

package imagefs_test

import (
	"fmt"
	"maps"
)

const (
	kernel     = "6.1.0-51-amd64"
	modulesDir = "opt/lib/modules/" + kernel
	topFile    = modulesDir + "/extra/top.ko"
	belowFile  = modulesDir + "/extra/below.ko"
	upToRoot   = "../../../../../" // from the folder of belowFile
)

// image is what an image has, by paths without a leading slash.
type image struct {
	files map[string]string // to their content; module stands for that of a kernel module
	links map[string]string // to their targets
	hard  map[string]string // to the path that they are another name of
	pipes []string
}

// module is the content of the kernel module that the file's name says.
const module = "module"

// linkCase is an image that has links. Kernel module top is wanted, and needs below.
type linkCase struct {
	name string
	image
	firmware []string // that the node gets; /firmware is wanted if there is some, or the image has it
	// refused is what all say who are asked to use the image; empty: they use it, and find below.
	refused string
	// unsigned: the link is at a place whose files are not signed, and no matter to the signer.
	unsigned bool
}

// with is an image of top, of below at some path, and of links.
func with(below string, links map[string]string) image {
	return image{files: map[string]string{topFile: module, below: module}, links: links}
}

func (i image) and(files map[string]string) image {
	maps.Copy(i.files, files)
	return i
}

func (i image) andHard(links map[string]string) image {
	i.hard = links
	return i
}

// chain is so many links, one after another, from belowFile to data/below.ko.
func chain(length int) image {
	links := map[string]string{}
	at := belowFile
	for n := range length - 1 {
		next := fmt.Sprintf("data/%d", n)
		links[at], at = "/"+next, next
	}
	links[at] = "/data/below.ko"
	return with("data/below.ko", links)
}

// linkCases are all that links can be. Each must come out alike wherever an image is used.
func linkCases() []linkCase {
	return append(append(usedCases(), firmwareCases()...), refusedCases()...)
}

func usedCases() []linkCase {
	return []linkCase{
		{name: "no link", image: with(belowFile, nil)},
		{name: "a file, relative", image: with("data/below.ko", map[string]string{belowFile: upToRoot + "data/below.ko"})},
		{name: "a file, absolute", image: with("data/below.ko", map[string]string{belowFile: "/data/below.ko"})},
		{name: "above the root is the root", image: with("data/below.ko", map[string]string{belowFile: upToRoot + "../../data/below.ko"})},
		{name: "links to links", image: with("data/below.ko", map[string]string{belowFile: "/data/1", "data/1": "./2", "data/2": "below.ko"})},
		{name: "as many links as the kernel follows", image: chain(40)},
		{name: "through a folder that is a link", image: with("data/below.ko", map[string]string{belowFile: "/at/below.ko", "at": "data/."})},
		{name: "up from where a link led", image: with("data/below.ko", map[string]string{belowFile: "/at/../below.ko", "at": "/data/sub"}).
			and(map[string]string{"data/sub/file": ""})},
		{name: "a folder, absolute", image: with("data/below.ko", map[string]string{modulesDir + "/updates": "/data"})},
		{name: "a folder, relative", image: with("data/below.ko", map[string]string{modulesDir + "/updates": "../../../../data"})},
		{name: "a link in a folder that is one", image: with("more/b", map[string]string{modulesDir + "/updates": "/data",
			"data/below.ko": "../more/b"})},
		{name: "two ways to a folder", image: with("data/below.ko", map[string]string{modulesDir + "/a": "/data", modulesDir + "/b": "/data"})},
		{name: "the kernel's folder", image: image{files: map[string]string{"data/extra/top.ko": module, "data/extra/below.ko": module},
			links: map[string]string{modulesDir: "/data"}}},
		{name: "lib", image: image{files: map[string]string{"usr/lib/modules/" + kernel + "/extra/top.ko": module,
			"usr/lib/modules/" + kernel + "/extra/below.ko": module}, links: map[string]string{"opt/lib": "/usr/lib"}}},
		{name: "dirName", image: image{files: map[string]string{"srv/" + topFile[len("opt/"):]: module, "srv/" + belowFile[len("opt/"):]: module},
			links: map[string]string{"opt": "srv"}}},
		{name: "an index", image: with(belowFile, map[string]string{modulesDir + "/modules.dep": "/data/dep"}).
			and(map[string]string{"data/dep": "extra/top.ko: extra/below.ko\n"})},
		{name: "what is the node's own", image: with(belowFile, map[string]string{
			modulesDir + "/build": "/usr/src/linux", modulesDir + "/source": "build", modulesDir + "/host": "/lib/modules/" + kernel,
		})},
		{name: "at no place that matters", image: with(belowFile, map[string]string{"etc/mtab": "/proc/mounts", "opt/lib/modules/5": "6"})},
		{name: "a hard link", image: with("data/below.ko", nil).andHard(map[string]string{belowFile: "data/below.ko"})},
		{name: "a hard link to a hard link", image: with("data/below.ko", nil).
			andHard(map[string]string{"data/second.ko": "data/below.ko", belowFile: "data/second.ko"})},
		{name: "a hard link to a symbolic link", image: with("data/below.ko", map[string]string{"data/link": "/data/below.ko"}).
			andHard(map[string]string{belowFile: "data/link"})},
		{name: "a symbolic link to a hard link", image: with("data/below.ko", map[string]string{belowFile: "/data/second.ko"}).
			andHard(map[string]string{"data/second.ko": "data/below.ko"})},
	}
}

func firmwareCases() []linkCase {
	fw := func(links map[string]string) image {
		return with(belowFile, links).and(map[string]string{"firmware/a.bin": "a", "data/b.bin": "b"})
	}
	return []linkCase{
		{name: "firmware, a file", image: fw(map[string]string{"firmware/c.bin": "/data/b.bin"}), firmware: []string{"a.bin", "c.bin"}},
		{name: "firmware, a folder", image: fw(map[string]string{"firmware/v": "../data"}), firmware: []string{"a.bin", "v/b.bin"}},
		{name: "all firmware", image: with(belowFile, map[string]string{"firmware": "/data"}).and(map[string]string{"data/b.bin": "b"}),
			firmware: []string{"b.bin"}},
		{name: "firmware that is not there", image: fw(map[string]string{"firmware/c.bin": "/etc/passwd"}), unsigned: true,
			refused: "/firmware/c.bin is a link to /etc/passwd, and the image has no /etc"},
		{name: "a firmware folder that is not there", image: fw(map[string]string{"firmware/v": "gone"}), unsigned: true,
			refused: "/firmware/v is a link to gone, and the image has no /firmware/gone"},
		{name: "no firmware there", image: with(belowFile, map[string]string{"firmware": "gone"}), unsigned: true,
			refused: "/firmware is a link to gone, and the image has no /gone"},
		{name: "firmware in a circle", image: fw(map[string]string{"firmware/v": "."}), unsigned: true,
			refused: "/firmware/v is a link to ., which leads to a directory that it is in"},
	}
}

func refusedCases() []linkCase {
	below := func(target string) image { return with("data/file", map[string]string{belowFile: target}) }
	refused := func(why string) string { return "/" + belowFile + " is a link to " + why }
	return []linkCase{
		{name: "nothing there, relative", image: below("gone.ko"),
			refused: refused("gone.ko, and the image has no /" + modulesDir + "/extra/gone.ko")},
		{name: "nothing there, absolute", image: below("/data/gone"), refused: refused("/data/gone, and the image has no /data/gone")},
		{name: "a file of the node's", image: below(upToRoot + "../../../../../../../etc/passwd"),
			refused: refused(upToRoot + "../../../../../../../etc/passwd, and the image has no /etc")},
		{name: "nothing there, by a link", image: with("data/file", map[string]string{belowFile: "/data/1", "data/1": "gone"}),
			refused: refused("/data/1, and the image has no /data/gone")},
		{name: "itself", image: below("below.ko"), refused: refused("below.ko, which leads to more than 40 links")},
		{name: "each other", image: with("data/file", map[string]string{belowFile: "/data/1", "data/1": "/" + belowFile}),
			refused: refused("/data/1, which leads to more than 40 links")},
		{name: "more links than the kernel follows", image: chain(41), refused: refused("/data/0, which leads to more than 40 links")},
		{name: "through a file", image: below("/data/file/x"), refused: refused("/data/file/x, and /data/file is not a directory")},
		{name: "a pipe", image: image{files: map[string]string{topFile: module}, links: map[string]string{belowFile: "/data/pipe"},
			pipes: []string{"data/pipe"}}, refused: refused("/data/pipe")},
		{name: "a folder that is not there", image: with("data/file", map[string]string{modulesDir + "/updates": "/gone"}),
			refused: "/" + modulesDir + "/updates is a link to /gone, and the image has no /gone"},
		{name: "a folder that it is in", image: with(belowFile, map[string]string{modulesDir + "/extra/self": ".."}), unsigned: true,
			refused: "/" + modulesDir + "/extra/self is a link to .., which leads to a directory that it is in"},
		{name: "folders in a circle", unsigned: true,
			image: with(belowFile, map[string]string{modulesDir + "/updates": "/data", "data/back": "/" + modulesDir + "/updates"}).
				and(map[string]string{"data/x": ""}),
			refused: "/data/back is a link to /" + modulesDir + "/updates, which leads to a directory that it is in"},
		{name: "no folder of the kernel's",
			image:   image{files: map[string]string{"data/file": ""}, links: map[string]string{modulesDir: "/data/gone"}},
			refused: "/" + modulesDir + " is a link to /data/gone, and the image has no /data/gone"},
		{name: "no dirName", image: image{files: map[string]string{"data/file": ""}, links: map[string]string{"opt": "/gone"}},
			refused: "/opt is a link to /gone, and the image has no /gone"},
		{name: "no index", image: with(belowFile, map[string]string{modulesDir + "/modules.dep": "/gone"}), unsigned: true,
			refused: "/" + modulesDir + "/modules.dep is a link to /gone, and the image has no /gone"},
		{name: "whatever it is, in the kernel's folder", unsigned: true,
			image:   with(belowFile, map[string]string{modulesDir + "/extra/README": "/gone"}),
			refused: "/" + modulesDir + "/extra/README is a link to /gone, and the image has no /gone"},
		{name: "a place that is the node's own only below lib/modules", unsigned: true,
			image:   with(belowFile, map[string]string{modulesDir + "/extra/build": "/gone"}),
			refused: "/" + modulesDir + "/extra/build is a link to /gone, and the image has no /gone"},
	}
}
