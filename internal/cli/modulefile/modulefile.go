// SPDX-License-Identifier: Apache-2.0

// Package modulefile reads the Modules of a file to be applied.
package modulefile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Read takes all Modules of a file; - is standard input. Unknown fields are errors.
func Read(name string, in io.Reader) ([]*v1beta1.Module, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open the file: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	var found []*v1beta1.Module
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(in)); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if kind.Kind != "Module" || kind.APIVersion != v1beta1.GroupVersion.String() {
			continue
		}
		m := &v1beta1.Module{}
		if err := yaml.UnmarshalStrict(document, m); err != nil {
			return nil, fmt.Errorf("read the Module in %s: %w", name, err)
		}
		found = append(found, m)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no Module (%s) in %s", v1beta1.GroupVersion, name)
	}
	return found, nil
}
