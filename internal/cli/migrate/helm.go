// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/shared/definition"
)

// `helm uninstall` deletes what the manifest in the release's record says, whatever the cluster's
// objects say; `helm upgrade` keeps objects with the annotation in the cluster. So both get it.

// Release is one of Helm, of which definitions of KMM are part.
type Release struct {
	Namespace, Name string
	// Records are the Secrets of what Helm installed, one per revision; none: there is no record.
	Records []string
	// Deletes are the definitions that an uninstall would delete, now or after a rollback.
	Deletes []string
	// Problem: why that cannot be told.
	Problem string
}

// record is a release with those of its Secrets that change, as they will be.
type record struct {
	Release
	marked []*unstructured.Unstructured
}

// mostManifest bounds what a record may unpack to, in bytes. A packed one fits into a Secret.
const mostManifest = 64 << 20

// release reads each revision that Helm has recorded: `helm uninstall` goes by the highest,
// whatever became of it, and `helm rollback` makes a new one of any.
func (a *api) release(ctx context.Context, namespace, name string) (*record, error) {
	r := &record{Release: Release{Namespace: namespace, Name: name}}
	found, err := a.listIn(ctx, secrets, namespace, metav1.ListOptions{LabelSelector: "owner=helm,name=" + name})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		r.Problem = "there is no record of the release in namespace " + namespace
	}
	for i := range found {
		secret, err := as[corev1.Secret](&found[i])
		if err != nil {
			return nil, err
		}
		r.Records = append(r.Records, secret.Name)
		data, names, err := keepDefinitions(secret.Data["release"])
		if err != nil {
			r.Problem = "Secret " + secret.Name + ": " + err.Error()
		}
		if err != nil || len(names) == 0 {
			continue
		}
		err = unstructured.SetNestedField(found[i].Object, base64.StdEncoding.EncodeToString(data), "data", "release")
		if err != nil {
			return nil, fmt.Errorf("change Secret %s: %w", secret.Name, err)
		}
		r.Deletes, r.marked = append(r.Deletes, names...), append(r.marked, &found[i])
	}
	slices.Sort(r.Deletes)
	r.Deletes = slices.Compact(r.Deletes)
	return r, nil
}

// keepInRecord has Helm keep the definitions at an uninstall.
func (a *api) keepInRecord(ctx context.Context, r *record) error {
	for _, secret := range r.marked {
		if err := a.update(ctx, secrets, secret); err != nil {
			return err
		}
	}
	return nil
}

// keepDefinitions annotates Drover's definitions in the manifest of a release, of which the record
// is gzipped JSON in base64. It says which were not annotated.
func keepDefinitions(data []byte) (changed []byte, names []string, err error) {
	release, err := unpack(data)
	if err != nil {
		return nil, nil, err
	}
	manifest, ok := release["manifest"].(string)
	if !ok {
		return nil, nil, errors.New("the release's record has no manifest")
	}
	documents := strings.Split("\n"+manifest, "\n---")
	for i, document := range documents {
		object := &unstructured.Unstructured{}
		// What Helm cannot read, it does not delete. Definitions are whole objects.
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil || object.GetKind() != definition.Kind.Kind ||
			!slices.Contains(used, object.GetName()) || object.GetAnnotations()[keepAnnotation] == keep {
			continue
		}
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[keepAnnotation] = keep
		object.SetAnnotations(annotations)
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, nil, fmt.Errorf("encode definition %s: %w", object.GetName(), err)
		}
		documents[i] = "\n" + string(text)
		names = append(names, object.GetName())
	}
	if len(names) == 0 {
		return data, nil, nil
	}
	release["manifest"] = strings.TrimPrefix(strings.Join(documents, "\n---"), "\n")
	changed, err = pack(release)
	return changed, names, err
}

func unpack(data []byte) (map[string]any, error) {
	packed, err := base64.StdEncoding.DecodeString(string(data))
	if err != nil {
		return nil, fmt.Errorf("decode the release's record: %w", err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack the release's record: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(reader, mostManifest))
	if err != nil {
		return nil, fmt.Errorf("unpack the release's record: %w", err)
	}
	var release map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float would change what others have written
	if err := decoder.Decode(&release); err != nil {
		return nil, fmt.Errorf("read the release's record: %w", err)
	}
	return release, nil
}

func pack(release map[string]any) ([]byte, error) {
	text, err := json.Marshal(release)
	if err != nil {
		return nil, fmt.Errorf("encode the release's record: %w", err)
	}
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = writer.Write(text)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("pack the release's record: %w", err)
	}
	return []byte(base64.StdEncoding.EncodeToString(packed.Bytes())), nil
}
