// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// defaultDirName is the schema's default, so that what is wanted equals what is stored.
const defaultDirName = "/opt"

// maxImage is a NodeModulesConfig's bound of an image: the API server would refuse an order beyond
// it.
const maxImage = 4096

// Mapper finds the kernel mapping for a kernel. Make it once per Module generation: that compiles
// the regular expressions.
type Mapper struct {
	container v1beta1.ModuleLoaderContainerSpec
	mappings  []compiledMapping
	namespace string
	name      string
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

type compiledMapping struct {
	literal      string
	regexp       *regexp.Regexp
	architecture string // as Go spells it; empty: any
	// image is a template, and path the field that holds it.
	image, path string
}

// matches takes a processor that is not known for the one of the mapping.
func (c *compiledMapping) matches(version, arch string) bool {
	if c.architecture != "" && arch != "" && c.architecture != arch {
		return false
	}
	if c.regexp != nil {
		return c.regexp.MatchString(version)
	}
	return c.literal == version
}

// NewMapper compiles the kernel mappings of the Module namespace/name. Errors name the offending
// field: a mapping with neither or both of literal and regexp, an expression that does not compile,
// an image that is missing, malformed, or uses an unknown variable or CONTAINER_IMAGE.
func NewMapper(spec *v1beta1.ModuleLoaderSpec, namespace, name string) (*Mapper, error) {
	if spec == nil {
		return nil, errors.New("spec.moduleLoader is not set")
	}
	m := &Mapper{container: *spec.Container.DeepCopy(), namespace: namespace, name: name}
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
	compiled := compiledMapping{literal: Trim(mapping.Literal), architecture: mapping.Architecture}

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

	compiled.image, compiled.path = mapping.ContainerImage, path+".containerImage"
	if compiled.image == "" {
		compiled.image, compiled.path = m.container.ContainerImage, "spec.moduleLoader.container.containerImage"
	}
	if compiled.image == "" {
		return compiledMapping{}, fmt.Errorf("%s: containerImage must be set, here or in the container", path)
	}
	names, err := variablesIn(compiled.image)
	if err != nil {
		return compiledMapping{}, fmt.Errorf("%s: %w", compiled.path, err)
	}
	if slices.Contains(names, VarContainerImage) {
		return compiledMapping{}, fmt.Errorf("%s: the image cannot use variable %s, which stands for it", compiled.path, VarContainerImage)
	}
	return compiled, nil
}

// For returns what to load on a kernel and architecture (as Go spells it), or false when no mapping
// matches. Literals and regular expressions (not anchored) apply to the version without its
// trailing "+". A mapping with an architecture applies to no other; the first mapping that matches
// wins. It is an error if the mapping's image uses a variable that this kernel does not give, or if
// the image is too long, and an [InvalidError], whatever the mappings, if no kernel can have the
// version, or no processor the name.
func (m *Mapper) For(kernelVersion, arch string) (Resolved, bool, error) {
	if kernelVersion == "" {
		return Resolved{}, false, nil // not reported yet
	}
	if err := (Platform{kernelVersion, arch}).Check(); err != nil {
		return Resolved{}, true, err
	}
	version := Trim(kernelVersion)
	index := slices.IndexFunc(m.mappings, func(c compiledMapping) bool { return c.matches(version, arch) })
	if index < 0 {
		return Resolved{}, false, nil
	}
	mapping := m.mappings[index]
	image, err := Substitute(mapping.image, Parse(version).TagSafe().Variables(map[string]string{
		VarNodeArch: arch, VarModName: m.name, VarModNamespace: m.namespace,
	}))
	if err != nil {
		return Resolved{}, true, fmt.Errorf("%s: %w", mapping.path, err)
	}
	if len(image) > maxImage {
		return Resolved{}, true, fmt.Errorf("%s has %d characters on this kernel, more than %d", mapping.path, len(image), maxImage)
	}
	return Resolved{Config: m.config(index, version, image), Release: kernelVersion, Mapping: index}, true, nil
}

// config merges a mapping over the container's settings. It is, field for field, what KMM writes: a
// KMM that comes back compares whole configs, and unloads what differs in any way.
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
	config.Modprobe.DirName = cmp.Or(config.Modprobe.DirName, defaultDirName)
	// A mapping with either of the two fields for in-tree modules overrides the container.
	inTree := inTreeModules(mapping.InTreeModulesToRemove, mapping.InTreeModuleToRemove)
	if len(inTree) == 0 {
		inTree = inTreeModules(m.container.InTreeModulesToRemove, m.container.InTreeModuleToRemove)
	}
	if len(inTree) > 0 {
		config.InTreeModulesToRemove = slices.Clone(inTree)
	}
	return config
}

// InTreeModules are the modules to remove before a load: the list, or the deprecated field.
func InTreeModules(config *v1beta1.ModuleConfig) []string {
	return inTreeModules(config.InTreeModulesToRemove, config.InTreeModuleToRemove)
}

func inTreeModules(list []string, deprecated string) []string {
	if len(list) == 0 && deprecated != "" {
		return []string{deprecated}
	}
	return list
}

// Canonical is a config in the one form that all configs with its meaning share: with the pull
// policy that none stands for, and without the deprecated field.
func Canonical(config v1beta1.ModuleConfig) v1beta1.ModuleConfig {
	config.ImagePullPolicy = cmp.Or(config.ImagePullPolicy, corev1.PullIfNotPresent)
	config.InTreeModulesToRemove, config.InTreeModuleToRemove = InTreeModules(&config), ""
	return config
}
