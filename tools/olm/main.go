// SPDX-License-Identifier: Apache-2.0

// Command olm validates a bundle for the Operator Lifecycle Manager with the library that
// operator-sdk and catalogs use. It takes the bundle's folder, prints what the library finds, and
// ends with a line RESULT. Warnings are told, and are no failure.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// validators are all but the deprecated ones, those of package manifests, which a bundle has not,
// and the one that pulls images.
var validators = interfaces.Validators{
	validation.ClusterServiceVersionValidator, validation.CustomResourceDefinitionValidator, validation.BundleValidator,
	validation.OperatorHubV2Validator, validation.StandardCategoriesValidator, validation.StandardCapabilitiesValidator,
	validation.ObjectValidator, validation.OperatorGroupValidator, validation.AlphaDeprecatedAPIsValidator, validation.GoodPracticesValidator,
}

type result struct {
	Valid    bool   `json:"valid"`
	Package  string `json:"package"`
	Name     string `json:"name"`
	Objects  int    `json:"objects"`
	Errors   int    `json:"errors"`
	Warnings int    `json:"warnings"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "olm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("name the bundle's folder, and nothing else")
	}
	bundle, err := manifests.GetBundleFromDir(args[0])
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	r := result{Package: bundle.Package, Name: bundle.Name, Objects: len(bundle.Objects)}
	for _, found := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, w := range found.Warnings {
			r.Warnings++
			fmt.Println("warning:", w.Error())
		}
		for _, e := range found.Errors {
			r.Errors++
			fmt.Println("FAILED", e.Error())
		}
	}
	r.Valid = r.Errors == 0 && r.Objects > 1
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	if !r.Valid {
		return fmt.Errorf("%d errors", r.Errors)
	}
	return nil
}
