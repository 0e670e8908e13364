// SPDX-License-Identifier: Apache-2.0

// Command lolcow-operator makes web pages with cows out of Lolcows.
package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/internal/operators/lolcow"
	"github.com/drover-project/drover/kit"
)

func main() {
	kit.Main(kit.Program{
		Name:        lolcow.Name,
		AddToScheme: []func(*runtime.Scheme) error{api.AddToScheme},
		Requires:    lolcow.Requirements(),
		Setup: func(mgr ctrl.Manager) error {
			if kind, err := lolcow.SetupControllers(mgr); err != nil {
				return fmt.Errorf("controller of kind %s: %w", kind, err)
			}
			return nil
		},
	})
}
