// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// defaultDirName is the schema's default, so that what is wanted equals what is stored.
const defaultDirName = "/opt"

// maxRemembered bounds a Mapper's memory; a cluster has far fewer distinct kernels.
const maxRemembered = 1024

// Bounds of a NodeModulesConfig's schema: the API server would refuse an order beyond them.
const (
	maxVersion = 256
	maxImage   = 4096
)

// Mapper finds the kernel mapping for a kernel. Make it once per Module generation: that compiles
// the regular expressions and templates. It is safe for concurrent use.
type Mapper struct {
	container v1beta1.ModuleLoaderContainerSpec
	mappings  []compiledMapping
	namespace string
	name      string

	mu    sync.RWMutex
	known map[platform]answer // nodes are many, their kernels few
}

// Resolved is a kernel mapping applied to one kernel.
type Resolved struct {
	// Config is ready for a NodeModulesConfig entry. The caller owns it.
	Config v1beta1.ModuleConfig
	// Release is what `uname -r` prints. Config has it without a trailing "+", as KMM does.
	Release string
	// Mapping is the index into spec.moduleLoader.container.kernelMappings.
	Mapping int
}

// platform is a kernel's version, trimmed, and the architecture.
type platform struct{ version, arch string }

type compiledMapping struct {
	literal string
	regexp  *regexp.Regexp
	image   template
	path    string
}

type answer struct {
	resolved Resolved
	found    bool
	err      error
}

// NewMapper compiles the kernel mappings of the Module namespace/name. Errors name the offending
// field: a mapping with neither or both of literal and regexp, an expression that does not compile,
// an image that is missing, malformed, or uses an unknown variable or CONTAINER_IMAGE.
func NewMapper(spec *v1beta1.ModuleLoaderSpec, namespace, name string) (*Mapper, error) {
	if spec == nil {
		return nil, errors.New("spec.moduleLoader is not set")
	}
	m := &Mapper{
		container: *spec.Container.DeepCopy(),
		namespace: namespace,
		name:      name,
		known:     map[platform]answer{},
	}
	m.mappings = make([]compiledMapping, 0, len(m.container.KernelMappings))
	for i := range m.container.KernelMappings {
		compiled, err := m.compile(i)
		if err != nil {
			return nil, err
		}
		m.mappings = append(m.mappings, compiled)
	}
	return m, nil
}

func (m *Mapper) compile(index int) (compiledMapping, error) {
	mapping := &m.container.KernelMappings[index]
	path := fmt.Sprintf("spec.moduleLoader.container.kernelMappings[%d]", index)
	compiled := compiledMapping{literal: Trim(mapping.Literal)}

	switch {
	case (mapping.Literal == "") == (mapping.Regexp == ""):
		return compiledMapping{}, fmt.Errorf("%s: exactly one of regexp and literal must be set", path)
	case mapping.Regexp != "":
		expression, err := regexp.Compile(mapping.Regexp)
		if err != nil {
			return compiledMapping{}, fmt.Errorf("%s.regexp: %w", path, err)
		}
		compiled.regexp = expression
	}

	image := mapping.ContainerImage
	compiled.path = path + ".containerImage"
	if image == "" {
		image = m.container.ContainerImage
		compiled.path = "spec.moduleLoader.container.containerImage"
	}
	if image == "" {
		return compiledMapping{}, fmt.Errorf("%s: containerImage must be set, here or in the container", path)
	}
	var err error
	if compiled.image, err = parseTemplate(image); err != nil {
		return compiledMapping{}, fmt.Errorf("%s: %w", compiled.path, err)
	}
	if compiled.image.uses(VarContainerImage) {
		return compiledMapping{}, fmt.Errorf("%s: the image cannot use variable %s, which stands for it", compiled.path, VarContainerImage)
	}
	return compiled, nil
}

// For returns what to load on a kernel and architecture (as Go spells it), or false when no mapping
// matches. Literals and regular expressions (not anchored) apply to the version without its
// trailing "+"; the first mapping that matches wins. It is an error if the mapping's image uses a
// variable that this kernel does not give, or if the version or the image is too long.
func (m *Mapper) For(kernelVersion, arch string) (Resolved, bool, error) {
	on := platform{version: Trim(kernelVersion), arch: arch}
	m.mu.RLock()
	known, ok := m.known[on]
	m.mu.RUnlock()
	if !ok {
		known.resolved, known.found, known.err = m.resolve(on.version, arch)
		m.mu.Lock()
		if len(m.known) < maxRemembered {
			m.known[on] = known
		}
		m.mu.Unlock()
	}
	if !known.found || known.err != nil {
		return Resolved{}, known.found, known.err
	}
	return Resolved{Config: *known.resolved.Config.DeepCopy(), Release: kernelVersion, Mapping: known.resolved.Mapping}, true, nil
}

func (m *Mapper) resolve(version, arch string) (Resolved, bool, error) {
	index, ok := m.match(version)
	if !ok {
		return Resolved{}, false, nil
	}
	if len(version) > maxVersion {
		return Resolved{}, true, fmt.Errorf("the node's kernel version has %d characters, more than %d", len(version), maxVersion)
	}
	compiled := m.mappings[index]
	parsed := Parse(version).TagSafe()
	image, err := compiled.image.render(func(name string) string {
		switch name {
		case VarNodeArch:
			return arch
		case VarModName:
			return m.name
		case VarModNamespace:
			return m.namespace
		}
		if read := variables[name]; read != nil {
			return read(&parsed)
		}
		return ""
	})
	if err != nil {
		return Resolved{}, true, fmt.Errorf("%s: %w", compiled.path, err)
	}
	if len(image) > maxImage {
		return Resolved{}, true, fmt.Errorf("%s has %d characters on this kernel, more than %d", compiled.path, len(image), maxImage)
	}
	return Resolved{Config: m.config(index, version, image), Mapping: index}, true, nil
}

func (m *Mapper) match(version string) (index int, ok bool) {
	for i := range m.mappings {
		mapping := &m.mappings[i]
		if mapping.regexp != nil && mapping.regexp.MatchString(version) || mapping.regexp == nil && mapping.literal == version {
			return i, true
		}
	}
	return 0, false
}

// config merges a mapping over the container's settings.
func (m *Mapper) config(index int, version, image string) v1beta1.ModuleConfig {
	mapping := &m.container.KernelMappings[index]
	tls := m.container.RegistryTLS
	if mapping.RegistryTLS != nil {
		tls = *mapping.RegistryTLS
	}
	config := v1beta1.ModuleConfig{
		KernelVersion:   version,
		ContainerImage:  image,
		ImagePullPolicy: m.container.ImagePullPolicy,
		InsecurePull:    tls.Insecure || tls.InsecureSkipTLSVerify,
		Modprobe:        *m.container.Modprobe.DeepCopy(),
	}
	if config.ImagePullPolicy == "" {
		config.ImagePullPolicy = corev1.PullIfNotPresent
	}
	if config.Modprobe.DirName == "" {
		config.Modprobe.DirName = defaultDirName
	}
	// A mapping with either of the two fields for in-tree modules overrides the container.
	config.InTreeModulesToRemove, config.InTreeModuleToRemove = mapping.InTreeModulesToRemove, mapping.InTreeModuleToRemove
	if len(mapping.InTreeModulesToRemove) == 0 && mapping.InTreeModuleToRemove == "" {
		config.InTreeModulesToRemove, config.InTreeModuleToRemove = m.container.InTreeModulesToRemove, m.container.InTreeModuleToRemove
	}
	if len(config.InTreeModulesToRemove) == 0 {
		config.InTreeModulesToRemove = nil
	}
	return config
}

// InTreeModules are the modules to remove before a load: the list, or the deprecated field.
func InTreeModules(config *v1beta1.ModuleConfig) []string {
	if len(config.InTreeModulesToRemove) == 0 && config.InTreeModuleToRemove != "" {
		return []string{config.InTreeModuleToRemove}
	}
	return config.InTreeModulesToRemove
}
