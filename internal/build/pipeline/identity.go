// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline/result"
)

// DockerfileKey is KMM's key of the Dockerfile in its ConfigMap.
const DockerfileKey = "dockerfile"

const (
	hashDigits = 32
	nameDigits = 16
)

// inputs is everything that decides what an image holds, not where and over which connection a
// build runs. Its JSON form is hashed: a change of field names or order builds every image of a
// cluster again.
type inputs struct {
	Namespace string       `json:"namespace"`
	Module    string       `json:"module"`
	Kernel    string       `json:"kernel"`
	Arch      string       `json:"arch"`
	Image     string       `json:"image"`
	Dir       string       `json:"dir,omitempty"`
	Build     *buildInputs `json:"build,omitempty"`
	Sign      *signInputs  `json:"sign,omitempty"`
}

type buildInputs struct {
	Dockerfile string               `json:"dockerfile,omitempty"`
	Native     *v1beta1.NativeBuild `json:"native,omitempty"`
	Args       []v1beta1.BuildArg   `json:"args,omitempty"`
	Secrets    []string             `json:"secrets,omitempty"`
	Source     string               `json:"source,omitempty"`
	Builder    string               `json:"builder,omitempty"`
}

type signInputs struct {
	Key      string   `json:"key"`
	Cert     string   `json:"cert"`
	Files    []string `json:"files,omitempty"`
	Unsigned string   `json:"unsigned,omitempty"`
}

// Source names the ConfigMap whose content is an input; "" is none.
func Source(spec *v1alpha1.ModuleImageSpec) string {
	switch b := spec.Build; {
	case b == nil:
		return ""
	case b.Native == nil:
		return b.DockerfileConfigMap
	case named(b.Native.SourceConfigMap):
		return b.Native.SourceConfigMap.Name
	}
	return ""
}

// Complete adds to declared inputs what the Module does not say: the content of the source's
// ConfigMap (nil where there is none), the builder's image, and the hash.
func Complete(namespace string, spec *v1alpha1.ModuleImageSpec, source *corev1.ConfigMap, builder string) error {
	if b := spec.Build; b != nil {
		switch name := Source(spec); {
		case name == "":
		case source == nil:
			return fmt.Errorf("ConfigMap %s is missing: create it in the Module's namespace", name)
		case b.Native == nil:
			text, ok := source.Data[DockerfileKey]
			if !ok {
				return fmt.Errorf("ConfigMap %s lacks the key %q: add it", name, DockerfileKey)
			}
			b.SourceDigest = digest([]byte(text))
		default:
			b.SourceDigest = contentOf(source)
		}
		if b.Native == nil {
			if builder == "" {
				return fmt.Errorf("the operator has no image to build from Dockerfiles with: set its flag --build-image, or use build.native")
			}
			b.Builder = builder
		}
	}
	spec.Hash = identity(namespace, spec)
	return nil
}

// Name of the ModuleImage with these inputs. An image to examine and one to push have different
// names, although their hash is the same.
func Name(spec *v1alpha1.ModuleImageSpec) string {
	if spec.Examine == nil {
		return v1alpha1.ImagePrefix + spec.Hash[:nameDigits]
	}
	return v1alpha1.ImagePrefix + digest(append([]byte(spec.Hash), encode(spec.Examine)...))[:nameDigits]
}

// identity is a digest of the inputs, after [Complete] of all of them.
func identity(namespace string, spec *v1alpha1.ModuleImageSpec) string {
	return digest(encode(inputsOf(namespace, spec)))[:hashDigits]
}

func inputsOf(namespace string, spec *v1alpha1.ModuleImageSpec) *inputs {
	in := &inputs{
		Namespace: namespace, Module: spec.Module, Kernel: spec.KernelVersion, Arch: spec.Architecture, Image: spec.Image, Dir: spec.DirName,
	}
	if b := spec.Build; b != nil {
		in.Build = &buildInputs{
			Dockerfile: b.DockerfileConfigMap, Native: b.Native, Args: b.Args, Secrets: b.Secrets, Source: b.SourceDigest, Builder: b.Builder,
		}
		if b.SourceDigest != "" {
			// The content counts, not the name.
			in.Build.Dockerfile = ""
			if b.Native != nil {
				in.Build.Native = b.Native.DeepCopy()
				in.Build.Native.SourceConfigMap = nil
			}
		}
	}
	if s := spec.Sign; s != nil {
		in.Sign = &signInputs{Key: s.KeySecret, Cert: s.CertSecret, Files: s.Files, Unsigned: s.UnsignedImage}
	}
	return in
}

// contentOf is a digest of a ConfigMap's content. A key is only in one of its two parts.
func contentOf(source *corev1.ConfigMap) string {
	files := maps.Clone(source.BinaryData)
	if files == nil {
		files = map[string][]byte{}
	}
	for key, text := range source.Data {
		files[key] = []byte(text)
	}
	return result.SourceDigest(files)
}

// encode writes JSON of types that always have a JSON form.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
