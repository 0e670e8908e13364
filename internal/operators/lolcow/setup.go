// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	ctrl "sigs.k8s.io/controller-runtime"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// controllers of the group, by kind. LolcowWorkspace has none.
var controllers = []struct {
	kind string
	add  func(ctrl.Manager) error
}{
	{"Lolcow", func(mgr ctrl.Manager) error {
		direct, err := kit.Direct(mgr)
		if err != nil {
			return err
		}
		return kit.Add(mgr, Operator(direct, mgr.GetAPIReader()))
	}},
}

// SetupControllers registers all controllers of the group. With an error, failed is the kind.
func SetupControllers(mgr ctrl.Manager) (failed string, err error) {
	for _, c := range controllers {
		if err := c.add(mgr); err != nil {
			return c.kind, err
		}
	}
	return "", nil
}

// Requirements are the kinds that the API server must serve, with all fields.
func Requirements() []kit.Requirement {
	return []kit.Requirement{{Object: &api.Lolcow{}}, {Object: &api.LolcowWorkspace{}}}
}
