// SPDX-License-Identifier: Apache-2.0

// Package provenance says how an image of ours was made, as an in-toto statement with a predicate
// of SLSA. It names sources and compiler, and nothing of the machine: the same build gives the same
// bytes. Nobody has signed it.
package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"

	predicate "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statement "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// MediaType of a statement, and Predicate, the type of what it states.
const (
	MediaType = "application/vnd.in-toto+json"
	Predicate = "https://slsa.dev/provenance/v1"
)

// builder is the program that makes images, and definition what its parameters mean.
const (
	builder    = "https://github.com/drover-project/drover/images/cmd/drover-images"
	definition = builder + "@v1"
)

// Build is what was made of what.
type Build struct {
	// Name of the image, without a registry, and the SHA-256 of its index, in hexadecimal digits.
	Name, SHA256 string
	// Version is what was linked into the programs.
	Version string
	// Processors, by Go's names.
	Processors []any
	// Packages are main packages, by folder from the repository's root.
	Packages []any
	// Compiler is Go's release.
	Compiler string
	// Sources is the repository's address; empty if it is not known.
	Sources string
	// Commit of the sources; empty if they are not from a repository. Changed says that they differ
	// from it.
	Commit  string
	Changed bool
	// Parts are package URLs of what was put into the image as it was.
	Parts []string
}

// State writes the statement.
func State(b Build) ([]byte, error) {
	external, err := structpb.NewStruct(map[string]any{
		"image": b.Name, "version": b.Version, "processors": b.Processors, "packages": b.Packages,
	})
	if err != nil {
		return nil, fmt.Errorf("parameters of the build: %w", err)
	}
	internal, err := structpb.NewStruct(map[string]any{"go": b.Compiler, "sourcesChanged": b.Changed})
	if err != nil {
		return nil, fmt.Errorf("parameters of the build: %w", err)
	}
	how := &predicate.Provenance{
		BuildDefinition: &predicate.BuildDefinition{
			BuildType: definition, ExternalParameters: external, InternalParameters: internal, ResolvedDependencies: dependencies(b),
		},
		RunDetails: &predicate.RunDetails{Builder: &predicate.Builder{Id: builder}},
	}
	if err := how.Validate(); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	content, err := protojson.Marshal(how)
	if err != nil {
		return nil, fmt.Errorf("write the provenance: %w", err)
	}
	said := &structpb.Struct{}
	if err := protojson.Unmarshal(content, said); err != nil {
		return nil, fmt.Errorf("write the provenance: %w", err)
	}
	whole := &statement.Statement{
		Type:          statement.StatementTypeUri,
		Subject:       []*statement.ResourceDescriptor{{Name: b.Name, Digest: map[string]string{"sha256": b.SHA256}}},
		PredicateType: Predicate,
		Predicate:     said,
	}
	if err := whole.Validate(); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	return stable(whole)
}

// dependencies are what the image was made of: the sources, and what others compiled.
func dependencies(b Build) []*statement.ResourceDescriptor {
	var all []*statement.ResourceDescriptor
	if b.Commit != "" {
		sources := &statement.ResourceDescriptor{Name: "sources", Digest: map[string]string{"gitCommit": b.Commit}}
		if b.Sources != "" {
			sources.Uri = "git+" + b.Sources
		}
		all = append(all, sources)
	}
	for _, part := range b.Parts {
		all = append(all, &statement.ResourceDescriptor{Uri: part})
	}
	return all
}

// stable writes a message with its keys sorted: protojson spaces its output at random, lest anybody
// count on its bytes.
func stable(message proto.Message) ([]byte, error) {
	content, err := protojson.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("write the statement: %w", err)
	}
	var fields any
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, fmt.Errorf("write the statement: %w", err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(fields); err != nil {
		return nil, fmt.Errorf("write the statement: %w", err)
	}
	return out.Bytes(), nil
}
