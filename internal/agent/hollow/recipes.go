// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// recipe says what is wrong with the images that a regular expression matches.
type recipe struct {
	pattern *regexp.Regexp
	what    string
	detail  string
}

// refusals are what a container runtime says of a pull that fails, after the image's name.
var refusals = map[string]string{
	"missing": "%s: not found",
	"unauthorized": "pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth " +
		"credentials (%s)",
	"unreachable": "failed to do request: Head %q: dial tcp 192.0.2.1:443: connect: connection refused",
}

// agentUnauthorized is the recipe by which the registry refuses not the image but that of the
// agent, which the carrier runs too.
const agentUnauthorized = "agent-unauthorized"

// contents are the recipes that change what an image has.
var contents = map[string]func(r recipe, files map[string][]byte, want export.Options){
	// empty: no kernel modules at all.
	"empty": func(_ recipe, files map[string][]byte, _ export.Options) { clear(files) },
	// deep: firmware in more directories than a delivery may nest.
	"deep": func(_ recipe, files map[string][]byte, want export.Options) {
		files[want.FirmwarePath+strings.Repeat("/d", manifest.MaxDepth+1)+"/deep.bin"] = nil
	},
	// firmware: a file of that name, with content of the image's own.
	"firmware": func(r recipe, files map[string][]byte, want export.Options) {
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return strings.HasPrefix(name, want.FirmwarePath+"/") })
		files[want.FirmwarePath+"/"+r.detail] = []byte("firmware for " + want.Module + "\n")
	},
}

// builds are the recipes that change the module that is built.
var builds = map[string]func(r recipe, m *synth.Module){
	// vermagic: built for that kernel, whatever the path says.
	"vermagic": func(r recipe, m *synth.Module) { m.Vermagic = r.detail + " SMP preempt mod_unload " },
	// depends: needs that module.
	"depends": func(r recipe, m *synth.Module) { m.Depends = append(m.Depends, r.detail) },
	// rename: the file holds a module of that name.
	"rename": func(r recipe, m *synth.Module) { m.Name = r.detail },
}

// parseRecipe reads pattern, recipe and detail.
func parseRecipe(form url.Values) (recipe, error) {
	r := recipe{what: form.Get("recipe"), detail: form.Get("detail")}
	var err error
	if r.pattern, err = regexp.Compile(form.Get("pattern")); err != nil {
		return r, fmt.Errorf("pattern of images: %w", err)
	}
	known := slices.Concat([]string{agentUnauthorized}, slices.Collect(maps.Keys(refusals)), slices.Collect(maps.Keys(contents)),
		slices.Collect(maps.Keys(builds)))
	if r.what != "" && !slices.Contains(known, r.what) {
		slices.Sort(known)
		return r, fmt.Errorf("no recipe %q: there are %s", r.what, strings.Join(known, ", "))
	}
	return r, nil
}

// cook makes images that match a recipe's pattern after it, in place of an earlier recipe of that
// pattern; one that is empty makes them good again. What nodes have pulled they keep.
func (i *images) cook(r recipe) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.recipes = slices.DeleteFunc(i.recipes, func(old recipe) bool { return old.pattern.String() == r.pattern.String() })
	if r.what != "" {
		i.recipes = append(i.recipes, r)
	}
}

// recipeFor returns the last recipe for an image; zero: the image is good.
func (i *images) recipeFor(reference string) recipe {
	for _, r := range slices.Backward(i.recipes) {
		if r.pattern.MatchString(reference) {
			return r
		}
	}
	return recipe{}
}

// refusal is what the registry answers to a pull for a carrier that runs the agent's image, in a
// container runtime's words, and of which image; empty: the pull succeeds.
func (i *images) refusal(reference, agent string) (image, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	what := i.recipeFor(reference).what
	text, bad := refusals[what]
	switch {
	case what == agentUnauthorized:
		reference, text = agent, refusals["unauthorized"]
	case bad:
	case i.pattern.MatchString(reference):
		return "", ""
	default:
		text = refusals["missing"]
	}
	where := reference
	if strings.Contains(text, "%q") {
		where = "https://" + path.Dir(reference) + "/manifests"
	}
	return reference, fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: ", reference,
		reference) + fmt.Sprintf(text, where)
}
