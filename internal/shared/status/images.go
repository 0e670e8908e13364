// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

// imagesAvailable is about images that are built or signed in the cluster. Ready does not follow
// from it: nodes that hold their images need no registry.
func imagesAvailable(m *Module, wanted []Node) metav1.Condition {
	const kind = v1beta1.ConditionImagesAvailable
	images := imagesOf(wanted)
	open := slices.DeleteFunc(slices.Clone(images), func(i *desired.Image) bool { return i.Problem == nil })
	switch {
	case len(open) > 0:
		return no(kind, open[0].Problem.Reason,
			fmt.Sprintf("%d of %s available; %s", len(images)-len(open), words.Count(len(images), "image"), missing(open)))
	case m.ImageProblem != nil:
		return no(kind, m.ImageProblem.Reason, shorten(m.ImageProblem.Message))
	case len(wanted) == 0:
		return yes(kind, v1beta1.ReasonNoNodes, noNodes)
	case len(images) == 0:
		return yes(kind, v1beta1.ReasonNotRequested, "No selected node needs an image that is built or signed in the cluster")
	}
	return yes(kind, v1beta1.ReasonImagesAvailable, "The registry has "+words.Count(len(images), "image"))
}

// imagesOf are the nodes' images, each once: failures first, then by kernel and architecture.
func imagesOf(wanted []Node) []*desired.Image {
	type key struct{ kernel, arch string }
	seen := map[key]bool{}
	var images []*desired.Image
	for i := range wanted {
		if image := wanted[i].Image; image != nil && !seen[key{image.Kernel, image.Architecture}] {
			seen[key{image.Kernel, image.Architecture}] = true
			images = append(images, image)
		}
	}
	slices.SortFunc(images, func(a, b *desired.Image) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.Architecture, b.Architecture))
	})
	return images
}

func urgency(i *desired.Image) int {
	switch {
	case i.Problem == nil:
		return 2
	case reasons.OnItsWay(i.Problem.Reason):
		return 1
	}
	return 0
}

func missing(open []*desired.Image) string {
	byReason := map[string][]string{}
	var reasons []string
	quotes := map[string]string{}
	for _, i := range open {
		r := i.Problem.Reason
		if byReason[r] == nil {
			reasons = append(reasons, r)
			quotes[r] = i.Problem.Message
		}
		byReason[r] = append(byReason[r], i.Kernel+" ("+i.Architecture+")")
	}
	parts := make([]string, 0, len(reasons))
	for _, r := range reasons {
		parts = append(parts, fmt.Sprintf("%s for %s%s", r, words.List(byReason[r], maxNames), hint(quotes[r])))
	}
	return strings.Join(parts, "; ")
}

// abandoned is true for a node that waits for an image that nobody tries to make any longer.
func abandoned(n *Node, p *reasons.Problem) bool {
	return n.Image != nil && n.Image.GivenUp && n.Image.Problem != nil && n.Image.Problem.Reason == p.Reason
}
