// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"errors"
	"io"
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const modules = "opt/lib/modules/6.1.0/"

func TestOneAddedLayerHoldsOnlyWhatChanged(t *testing.T) {
	given := imageOf(t,
		[]entry{dir("opt"), {name: "opt/lib", kind: '5', mode: 0o700, uid: 1000}, regular(modules+"a.ko", "a"), regular(modules+"b.ko", "b"),
			regular("bin/sh", "shell")},
		[]entry{{name: modules + "a.ko", kind: '0', content: "newer", mode: 0o4640, uid: 7, xattrs: map[string]string{
			"SCHILY.xattr.user.origin": "x", "SCHILY.xattr.security.ima": "hash of the old content", "mtime": "1700000000.5",
		}}},
	)
	result, report, err := Image(t.Context(), given, options(t, "/opt/lib/modules/*/a.ko", "/opt/nothing/*.ko"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(result); err != nil {
		t.Error(err)
	}
	equal(t, "files", []string{"/" + modules + "a.ko"}, report.Files)
	equal(t, "unmatched", []string{"/opt/nothing/*.ko"}, report.Unmatched)
	var names []string
	for _, h := range top(t, result) {
		names = append(names, h.Name)
		if h.ModTime.Unix() != 0 {
			t.Errorf("%s has a time: %s", h.Name, h.ModTime)
		}
	}
	equal(t, "entries", []string{"opt/", "opt/lib/", modules + "a.ko"}, names)
	lib, file := top(t, result)[1], top(t, result)[2]
	if lib.Mode != 0o700 || lib.Uid != 1000 || file.Mode != 0o4640 || file.Uid != 7 {
		t.Errorf("modes and owners changed: %+v, %+v", lib, file)
	}
	if file.PAXRecords["SCHILY.xattr.user.origin"] != "x" || file.PAXRecords["SCHILY.xattr.security.ima"] != "" {
		t.Errorf("attributes %v", file.PAXRecords)
	}
	want := files(t, given)
	want["/"+modules+"a.ko"] = "NEWER"
	equal(t, "image", want, files(t, result))
}

func TestTheSameInputGivesTheSameDigest(t *testing.T) {
	given := imageOf(t, []entry{dir("opt"), regular("opt/b.ko", "b"), regular("opt/a.ko", "a")})
	once, _, err := Image(t.Context(), given, options(t, "/opt/*.ko"))
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := Image(t.Context(), given, options(t, "/opt/b.ko", "/opt/a.ko", "/opt/?.ko"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "made again", digest(t, once), digest(t, again))
	twice, report, err := Image(t.Context(), once, options(t, "/opt/*.ko"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "made of what was made", digest(t, once), digest(t, twice))
	equal(t, "changed", 0, len(report.Changed))
}

func TestTheViewIsThatOfAContainer(t *testing.T) {
	for name, c := range map[string]struct {
		layers   [][]entry
		patterns []string
		want     []string
	}{
		"a whiteout hides": {
			layers:   [][]entry{{regular("opt/a.ko", "a"), regular("opt/b.ko", "b")}, {regular("opt/.wh.a.ko", "")}},
			patterns: []string{"/opt/*.ko"}, want: []string{"/opt/b.ko"},
		},
		"a whiteout of a folder hides all in it, and not what the same layer brings": {
			layers:   [][]entry{{dir("opt"), regular("opt/d/a.ko", "a")}, {regular("opt/d/b.ko", "b"), regular("opt/.wh.d", "")}},
			patterns: []string{"/opt/d/*.ko"}, want: []string{"/opt/d/b.ko"},
		},
		"an opaque folder hides what was in it": {
			layers:   [][]entry{{regular("opt/a.ko", "a")}, {regular("opt/b.ko", "b"), regular("opt/.wh..wh..opq", "")}, {regular("opt/c.ko", "c")}},
			patterns: []string{"/opt/*.ko"}, want: []string{"/opt/b.ko", "/opt/c.ko"},
		},
		"what comes again after a whiteout is there": {
			layers:   [][]entry{{regular("opt/a.ko", "a")}, {regular("opt/.wh.a.ko", "")}, {regular("opt/a.ko", "again")}},
			patterns: []string{"/opt/a.ko"}, want: []string{"/opt/a.ko"},
		},
		"a file in place of a folder hides what was in it": {
			layers:   [][]entry{{regular("opt/d/a.ko", "a")}, {regular("opt/d", "file")}, {dir("opt/d")}},
			patterns: []string{"/opt/d/*"}, want: nil,
		},
		"links to folders and files are followed, inside the image": {
			layers: [][]entry{{
				dir("usr/lib"), link("lib", "/usr/lib"), regular("usr/lib/a.ko", "a"), link("usr/lib/b.ko", "../../../../usr/lib/a.ko"),
			}},
			patterns: []string{"/lib/*.ko"}, want: []string{"/usr/lib/a.ko"},
		},
		"a hard link has the content of its target, and a name of its own": {
			layers:   [][]entry{{regular("opt/a", "a"), hard("opt/a.ko", "opt/a")}},
			patterns: []string{"/opt/*.ko"}, want: []string{"/opt/a.ko"},
		},
		"of two entries in one layer the later counts": {
			layers:   [][]entry{{regular("opt/a.ko", "first"), regular("./opt/a.ko", "second")}},
			patterns: []string{"/opt/a.ko"}, want: []string{"/opt/a.ko"},
		},
		"names with a leading dot are not in a star": {
			layers:   [][]entry{{regular("opt/.a.ko", "a"), regular("opt/b.ko", "b"), regular("/opt/c.ko", "c")}},
			patterns: []string{"/opt/*.ko"}, want: []string{"/opt/b.ko", "/opt/c.ko"},
		},
		"a set, a negated set and one character": {
			layers:   [][]entry{{regular("opt/a1.ko", "a"), regular("opt/b1.ko", "b"), regular("opt/c1.ko", "c")}},
			patterns: []string{"/opt/[!bc]?.ko", "/o[p]t/c?.ko"}, want: []string{"/opt/a1.ko", "/opt/c1.ko"},
		},
		"folders are no files": {
			layers:   [][]entry{{dir("opt/x.ko"), regular("opt/x.ko/y", "y")}},
			patterns: []string{"/opt/*.ko", "/opt/x.ko/y/z"}, want: nil,
		},
		"a device that nobody asks for does not matter": {
			layers:   [][]entry{{{name: "dev/sda", kind: '4'}, {name: "pipe", kind: '6'}, regular("opt/a.ko", "a")}},
			patterns: []string{"/opt/a.ko"}, want: []string{"/opt/a.ko"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := imageOf(t, c.layers...)
			result, report, err := Image(t.Context(), given, options(t, c.patterns...))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "files", c.want, report.Files)
			after, before := files(t, result), files(t, given)
			for _, path := range report.Changed {
				if before[path] == after[path] && before[path] != "" {
					t.Errorf("%s is as before: %q", path, after[path])
				}
				if path == "/opt/a.ko" && name == "of two entries in one layer the later counts" && after[path] != "SECOND" {
					t.Errorf("%s holds %q", path, after[path])
				}
			}
			equal(t, "changed", c.want, report.Changed)
		})
	}
}

func TestFilesKeepTheirOwnContentWhenEntriesComeAgain(t *testing.T) {
	given := imageOf(t, []entry{
		regular("opt/a.ko", "first"), regular("opt/b.ko", "b"), link("opt/a.ko", "/nowhere"), regular("opt/c.ko", "c"), regular("opt/a.ko", "a"),
	})
	result, _, err := Image(t.Context(), given, options(t, "/opt/*.ko"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "files", map[string]string{"/opt/a.ko": "A", "/opt/b.ko": "B", "/opt/c.ko": "C"}, files(t, result))
}

func TestImagesThatAreRefused(t *testing.T) {
	small := DefaultLimits()
	small.Entries, small.Unpacked, small.File, small.Files, small.Names = 20, 1<<20, 1000, 2, 5000
	many := make([]entry, 30)
	for i := range many {
		many[i] = regular("opt/"+string(rune('a'+i)), "")
	}
	long := ""
	for range 500 {
		long += "0123456789"
	}
	for name, c := range map[string]struct {
		layers [][]entry
	}{
		"an entry that leads upwards":                {[][]entry{{regular("opt/../../etc/shadow", "x"), regular("opt/a.ko", "a")}}},
		"a hard link that leads upwards":             {[][]entry{{hard("opt/a.ko", "../../run/secrets/key")}}},
		"a hard link to another layer's file":        {[][]entry{{regular("opt/x", "x")}, {hard("opt/a.ko", "opt/x")}}},
		"a hard link to a link":                      {[][]entry{{link("opt/x", "/etc/passwd"), hard("opt/a.ko", "opt/x")}}},
		"a hard link to itself":                      {[][]entry{{hard("opt/a.ko", "opt/a.ko")}}},
		"hard links to each other":                   {[][]entry{{hard("opt/a.ko", "opt/b"), hard("opt/b", "opt/a.ko")}}},
		"a link to itself":                           {[][]entry{{link("opt/a.ko", "a.ko")}}},
		"a link to nothing":                          {[][]entry{{link("opt/a.ko", "/nowhere")}}},
		"a wanted device":                            {[][]entry{{{name: "opt/a.ko", kind: '3'}}}},
		"a wanted pipe":                              {[][]entry{{{name: "opt/a.ko", kind: '6'}}}},
		"entries below what is a link in that layer": {[][]entry{{link("opt", "/etc"), regular("opt/a.ko", "a")}}},
		"entries below what is a link further down":  {[][]entry{{dir("usr"), link("opt", "/usr")}, {regular("opt/a.ko", "a")}}},
		"a whiteout of nothing":                      {[][]entry{{regular("opt/.wh...", "")}}},
		"a root that is a file":                      {[][]entry{{link("/", "/etc")}}},
		"a large file":                               {[][]entry{{regular("opt/a.ko", long)}}},
		"a long name":                                {[][]entry{{regular(long, "")}}},
		"many entries":                               {[][]entry{many}},
		"many wanted files":                          {[][]entry{{regular("opt/a.ko", "a"), regular("opt/b.ko", "b"), regular("opt/c.ko", "c")}}},
		"many bytes of names":                        {[][]entry{{regular(long[:2500], ""), link("a", long[:2000]), link("b", long[:2000])}}},
		"one that unpacks to much":                   {[][]entry{{regular("bomb", string(make([]byte, 2<<20)))}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "/opt/*.ko")
			o.Limits = small
			if _, _, err := Image(t.Context(), imageOf(t, c.layers...), o); !errors.Is(err, ErrRefused) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestBrokenLayersAreRefused(t *testing.T) {
	good := archive(t, []entry{regular("opt/a.ko", "a")})
	for name, raw := range map[string][]byte{
		"no archive": []byte("this is not an archive of any kind, but long enough to be read as a block of one, if only somebody " +
			"repeated it often enough, which nobody will, will they"),
		"gzip that is damaged": append(zip(t, good)[:60], 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
		"a damaged header":     append([]byte{0xff}, good[1:]...),
	} {
		image, err := mutate.AppendLayers(empty.Image, static.NewLayer(raw, types.OCILayer))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Image(t.Context(), image, options(t, "/opt/*.ko")); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	foreign, err := mutate.Append(empty.Image,
		mutate.Addendum{Layer: static.NewLayer(good, types.DockerForeignLayer), URLs: []string{"http://169.254.169.254/"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Image(t.Context(), foreign, options(t, "/opt/*.ko")); !errors.Is(err, ErrRefused) {
		t.Errorf("a layer that is somewhere else: %v", err)
	}
	if err := Unpack(t.Context(), foreign, t.TempDir(), DefaultLimits()); !errors.Is(err, ErrRefused) {
		t.Errorf("a layer that is somewhere else, to unpack: %v", err)
	}
}

func TestAChangeThatFailsNamesTheFile(t *testing.T) {
	o := options(t, "/opt/*.ko")
	reason := errors.New("no module")
	o.Change = func(string, *os.File, io.Writer) (bool, error) { return false, reason }
	_, _, err := Image(t.Context(), imageOf(t, []entry{regular("opt/a.ko", "a")}), o)
	if !errors.Is(err, reason) || err == nil || err.Error() != "layer 1 of 1: /opt/a.ko: no module" {
		t.Errorf("error %v", err)
	}
}

func TestPatternsThatAreRefused(t *testing.T) {
	for _, one := range []string{"opt/a.ko", "", "/", "/opt/[a", "/opt/.."} {
		if _, _, err := Image(t.Context(), empty.Image, options(t, one)); !errors.Is(err, ErrPattern) {
			t.Errorf("%q: %v", one, err)
		}
	}
}

func indexOf(t *testing.T, byPlatform map[string]v1.Image, order ...string) v1.ImageIndex {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range order {
		p, err := v1.ParsePlatform(name)
		if err != nil {
			t.Fatal(err)
		}
		config, err := byPlatform[name].ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config = config.DeepCopy()
		config.OS, config.Architecture = p.OS, p.Architecture
		image, err := mutate.ConfigFile(byPlatform[name], config)
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: p, Annotations: map[string]string{"for": name}},
		})
	}
	return index
}

func TestAnIndexKeepsWhatIsNotWanted(t *testing.T) {
	byPlatform := map[string]v1.Image{
		"linux/amd64":     imageOf(t, []entry{regular("opt/a.ko", "amd")}),
		"linux/arm64":     imageOf(t, []entry{regular("opt/a.ko", "arm"), regular("opt/b.ko", "b")}),
		"windows/amd64":   imageOf(t, []entry{regular("opt/a.ko", "windows")}),
		"unknown/unknown": imageOf(t, []entry{regular("opt/a.ko", "attestation")}),
	}
	given := indexOf(t, byPlatform, "linux/arm64", "unknown/unknown", "linux/amd64", "windows/amd64")
	for name, c := range map[string]struct {
		platforms []v1.Platform
		patterns  []string
		changed   []string
		unmatched []string
	}{
		"all for Linux":      {nil, []string{"/opt/*.ko"}, []string{"linux/arm64", "linux/amd64"}, []string{}},
		"one":                {[]v1.Platform{{OS: "linux", Architecture: "amd64"}}, []string{"/opt/*.ko"}, []string{"linux/amd64"}, []string{}},
		"file of one":        {nil, []string{"/opt/b.ko", "/opt/c.ko"}, []string{"linux/arm64"}, []string{"/opt/c.ko"}},
		"none of this index": {[]v1.Platform{{OS: "linux", Architecture: "s390x"}}, []string{"/opt/*.ko"}, nil, []string{"/opt/*.ko"}},
	} {
		t.Run(name, func(t *testing.T) {
			result, report, err := Index(t.Context(), given, c.platforms, options(t, c.patterns...))
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(result); err != nil {
				t.Error(err)
			}
			equal(t, "unmatched", c.unmatched, report.Unmatched)
			before, err := given.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			after, err := result.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			var changed []string
			for at, d := range after.Manifests {
				if d.Digest != before.Manifests[at].Digest {
					changed = append(changed, d.Platform.String())
				}
				d.Digest, d.Size = before.Manifests[at].Digest, before.Manifests[at].Size
				equal(t, "the rest of the descriptor", before.Manifests[at], d)
			}
			equal(t, "changed", c.changed, changed)
			if len(c.changed) == 0 {
				equal(t, "digest", digest(t, given), digest(t, result))
			}
			again, _, err := Index(t.Context(), result, c.platforms, options(t, c.patterns...))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "digest the second time", digest(t, result), digest(t, again))
		})
	}
}
