// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"errors"
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// lost is a layer that the registry does not send.
type lost struct{ v1.Layer }

func (lost) Compressed() (io.ReadCloser, error)  { return nil, errors.New("connection reset") }
func (lost) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

type imageOf struct {
	v1.Image
	layers []v1.Layer
}

func (i imageOf) Layers() ([]v1.Layer, error) { return i.layers, nil }

// TestALayerThatCannotBeReadIsNoFinding: an image that was read in part is not said to lack what is
// in the rest.
func TestALayerThatCannotBeReadIsNoFinding(t *testing.T) {
	findings, err := Look(t.Context(), imageOf{empty.Image, []v1.Layer{lost{}}}, Wish{})
	if err == nil || !strings.Contains(err.Error(), "connection reset") {
		t.Errorf("findings %v, error %v", findings, err)
	}
}
