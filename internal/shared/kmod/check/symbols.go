// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/words"
)

// mostNamed is how many symbols a message names.
const mostNamed = 3

// find returns who exports a symbol: a module before, or else the kernel.
func (c *checker) find(name string) (export, bool) {
	if e, ok := c.exports[name]; ok {
		return e, true
	}
	if c.Symbols == nil {
		return export{}, false
	}
	s, ok := c.Symbols(name)
	return export{Symbol: s, by: "kernel"}, ok
}

// missing finds symbols that have no exporter.
func (c *checker) missing(m Module) *Finding {
	if c.Symbols == nil {
		return nil
	}
	var names []string
	lacking := map[string]bool{}
	for _, s := range m.Details.Imports {
		if s.Optional || lacking[s.Name] {
			continue
		}
		if _, ok := c.find(s.Name); !ok {
			lacking[s.Name] = true
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	step := fmt.Sprintf("build it against kernel %s, or add the modules that export them to the image and to modulesLoadingOrder", c.Release)
	if later := exporter(c.later, lacking); later != "" {
		step = fmt.Sprintf("module %s exports some of them but is loaded later: put it after %s in modulesLoadingOrder", later, m.Name)
	}
	return &Finding{
		Reason: v1beta1.ReasonUnknownSymbol,
		Message: fmt.Sprintf("Module %s uses %s, which neither the running kernel %s nor a module loaded before exports; %s.",
			m.Name, words.Count(len(names), "symbol")+": "+words.List(names, mostNamed), c.Release, step),
	}
}

// exporter is the first module that exports one of these names; empty when none does.
func exporter(modules []Module, names map[string]bool) string {
	for _, m := range modules {
		for _, s := range m.Details.Exports {
			if names[s.Name] {
				return m.Name
			}
		}
	}
	return ""
}

// crcs finds symbols whose C type differs between the module's build and the exporter's.
func (c *checker) crcs(m Module) *Finding {
	if c.Vermagic != "" && !c.modversions() {
		return nil // then the kernel does not look at CRCs
	}
	var differing []string
	for _, s := range m.Details.Imports {
		if !s.HasCRC {
			continue
		}
		if e, ok := c.find(s.Name); ok && e.HasCRC && e.CRC != s.CRC {
			differing = append(differing, fmt.Sprintf("%s (module 0x%08x, %s 0x%08x)", s.Name, s.CRC, e.by, e.CRC))
		}
	}
	if len(differing) == 0 {
		return nil
	}
	return &Finding{
		Reason: v1beta1.ReasonUnknownSymbol,
		Message: fmt.Sprintf("Module %s was built with other CRCs of %s than kernel %s and the modules before it export: %s; "+
			"build it, and the modules that it depends on, against that kernel's Module.symvers.",
			m.Name, words.Count(len(differing), "symbol"), c.Release, words.List(differing, mostNamed)),
	}
}
