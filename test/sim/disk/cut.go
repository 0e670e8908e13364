// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
)

// cut is one that is being thought of.
type cut struct {
	*Disk
	now    *state
	left   *tree // the names that outlive it
	chance *rand.Rand
	image  Image
}

// Cut draws what a power cut at this moment leaves. The files stay as they are: who was at work
// when the power went may still tidy up in its own way before the image is put in place.
func (d *Disk) Cut(chance *rand.Rand) (*Image, error) {
	now, err := d.look()
	if err != nil {
		return nil, err
	}
	c := &cut{Disk: d, now: now, left: newTree(), chance: chance}
	for dir, names := range d.synced.names {
		for name, i := range names {
			c.left.put(place{dir, name}, i)
		}
	}
	for _, name := range now.paths { // in an order that no inode's number decides
		i := now.found[name]
		if p := now.at[i]; d.synced.at[i] != p && c.chance.IntN(2) == 0 {
			c.happen(i)
		}
	}
	c.walk(now.top, ".")
	return &c.image, nil
}

// happen has a file have the name that it has now. What came before in the journal has happened
// then, too: its directory is there, and who had the name before has left.
func (c *cut) happen(i inode) {
	p, ok := c.now.at[i]
	if !ok || c.left.at[i] == p {
		return
	}
	c.happen(p.dir)
	if old, ok := c.left.names[p.dir][p.name]; ok && old != i {
		c.happen(old)
	}
	c.left.put(p, i)
}

// walk adds to the image what is left below a directory.
func (c *cut) walk(dir inode, at string) {
	names := c.left.names[dir]
	for _, name := range slices.Sorted(maps.Keys(names)) {
		i, below := names[name], path.Join(at, name)
		_, there := c.now.at[i]
		if _, replaced := c.now.names[dir][name]; !there && !replaced && c.chance.IntN(2) == 0 {
			continue // it was taken away, and that has happened
		}
		mode, ok := c.now.modes[i]
		if !ok {
			mode = c.modes[i]
		}
		e := entry{path: below, mode: mode}
		if mode.IsDir() {
			c.image.all = append(c.image.all, e)
			c.walk(i, below)
			continue
		}
		e.content = c.content(i, there)
		c.image.all = append(c.image.all, e)
	}
}

// content is what is left of a file's.
func (c *cut) content(i inode, there bool) []byte {
	synced, is := c.files[i]
	now := c.now.files[i]
	switch {
	case !there:
		return synced // what was not synced is gone
	case is && bytes.Equal(synced, now):
		return now
	}
	may := [][]byte{now, nil}
	if is {
		may = append(may, synced)
	}
	return may[c.chance.IntN(len(may))]
}
