// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"fmt"
	"path"
	"strings"
)

type kind uint8

const (
	folder kind = iota
	file
	symlink
	hardlink
	other // devices, pipes
	gone  // a whiteout
)

// node is what has one name when all layers lie on each other.
type node struct {
	kind kind
	// unclear: runtimes read the layers differently here, because entries lie below what is a link
	// in another layer.
	unclear bool
	// layer is the highest that brings it.
	layer int32
	// opaque hides what layers below this one bring into the folder.
	opaque   int32
	link     string
	header   *tar.Header // of a folder with an entry of its own: its attributes
	children map[string]*node
}

const (
	xattrPrefix    = "SCHILY.xattr."
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// view is the image as a container sees it. Layers are added from the highest to the lowest: what
// is there hides what comes.
type view struct {
	root node
	// links are those of the layer that is being added, by their paths. A hard link to a link is
	// another of the same target.
	links   map[string]*node
	linksOf int32
	// local are the files on this machine that hold the content of the image's, by absolute paths.
	local map[string]string
}

func newView() *view {
	return &view{root: node{kind: folder}}
}

// entryPath is the path of an entry in the image, without a leading slash; "" is the root.
func entryPath(name string) (string, error) {
	const longest = 4096
	if len(name) > longest {
		return "", fmt.Errorf("%w: a name has %d bytes", ErrRefused, len(name))
	}
	if strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%w: a name has a zero byte", ErrRefused)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: the entry %q leads upwards", ErrRefused, name)
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// locate finds where an entry belongs. The base is empty for one that says nothing: the root's own,
// and notes of one storage driver to itself.
func locate(h *tar.Header) (dir, base string, err error) {
	name, err := entryPath(h.Name)
	if err != nil {
		return "", "", err
	}
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return "", "", fmt.Errorf("%w: the root is not a folder", ErrRefused)
		}
		return "", "", nil
	}
	dir, base = path.Dir(name), path.Base(name)
	switch hides, isWhiteout := strings.CutPrefix(base, whiteoutPrefix); {
	case base == whiteoutOpaque:
	case strings.HasPrefix(base, whiteoutMeta):
		return "", "", nil
	case isWhiteout && (hides == "" || hides == "." || hides == ".."):
		return "", "", fmt.Errorf("%w: the whiteout %q names nothing", ErrRefused, h.Name)
	}
	return dir, base, nil
}

// add takes in one entry of a layer.
func (v *view) add(layer int32, h *tar.Header) error {
	dir, base, err := locate(h)
	if err != nil || base == "" {
		return err
	}
	one, err := v.newNode(layer, path.Join(dir, base), h)
	if err != nil {
		return err
	}
	parent, hidden := v.descend(layer, dir)
	if hidden {
		return nil
	}
	switch hides, isWhiteout := strings.CutPrefix(base, whiteoutPrefix); {
	case base == whiteoutOpaque:
		parent.opaque = max(parent.opaque, layer)
		return nil
	case isWhiteout:
		parent.hide(layer, hides)
		return nil
	}
	parent.place(base, one)
	return nil
}

// descend finds or makes a folder for a layer's entries; hidden: higher layers hide its content.
func (v *view) descend(layer int32, dir string) (parent *node, hidden bool) {
	at := &v.root
	if dir == "." {
		return at, at.opaque > layer
	}
	for name := range strings.SplitSeq(dir, "/") {
		if at.opaque > layer {
			return nil, true
		}
		next := at.children[name]
		switch {
		case next == nil:
			next = &node{kind: folder, layer: layer}
			at.put(name, next)
		case next.kind == folder:
		case next.layer > layer:
			return nil, true
		case next.kind == gone:
			next = &node{kind: folder, layer: layer, opaque: layer}
			at.put(name, next)
		default:
			next.unclear = true
			return nil, true
		}
		at = next
	}
	return at, at.opaque > layer
}

func (v *view) newNode(layer int32, name string, h *tar.Header) (*node, error) {
	one := &node{layer: layer, kind: other}
	switch h.Typeflag {
	case tar.TypeDir:
		one.kind, one.header = folder, headerOf(tar.TypeDir, h)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		one.kind = file
	case tar.TypeSymlink:
		one.kind, one.link = symlink, strings.Clone(h.Linkname)
	case tar.TypeLink:
		target, err := entryPath(h.Linkname)
		if err != nil {
			return nil, err
		}
		one.kind, one.link = hardlink, strings.Clone(target)
	}
	if v.links == nil || v.linksOf != layer {
		v.links, v.linksOf = map[string]*node{}, layer
	}
	if to := v.links[one.link]; to != nil && one.kind == hardlink {
		one.kind, one.link = to.kind, to.link
	}
	delete(v.links, name)
	if one.kind == symlink || one.kind == hardlink {
		v.links[strings.Clone(name)] = one
	}
	return one, nil
}

func (n *node) put(name string, child *node) {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	n.children[strings.Clone(name)] = child
}

// hide applies a layer's whiteout to a name in the folder n.
func (n *node) hide(layer int32, name string) {
	switch there := n.children[name]; {
	case there == nil:
		n.put(name, &node{kind: gone, layer: layer})
	case there.kind == folder:
		there.opaque = max(there.opaque, layer)
	}
}

// place puts an entry into the folder n, below what higher layers have put there. Of two in one
// layer the later counts, as in every runtime.
func (n *node) place(name string, one *node) {
	there := n.children[name]
	switch {
	case there == nil:
		n.put(name, one)
	case there.kind == folder && one.kind == folder:
		if there.opaque <= one.layer && (there.header == nil || there.layer == one.layer) {
			there.header = one.header
		}
	case there.layer == one.layer:
		if there.kind == gone {
			one.opaque = one.layer
		}
		n.put(name, one)
	case there.kind == folder:
		// A higher layer puts files where this one has no folder: below the link, or in its place?
		there.unclear = there.unclear || there.header == nil
		there.opaque = max(there.opaque, one.layer)
	}
}
