// Typecheck checks the types of packages for a platform, without compiling anything:
//
//	GOOS=darwin GOARCH=arm64 typecheck ./...
//
// What the compiler refuses for one platform and takes for another is a matter of types and of
// files. The back end takes ten times as long, and tells no more.
package main

import (
	"fmt"
	"os"

	"golang.org/x/tools/go/packages"
)

func main() {
	// Without NeedExportFile, what is imported is read from its source; its functions' bodies are
	// skipped.
	config := &packages.Config{Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
		packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes |
		packages.NeedModule | packages.NeedSyntax | packages.NeedTypesInfo}
	loaded, err := packages.Load(config, os.Args[1:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if packages.PrintErrors(loaded) > 0 {
		os.Exit(1)
	}
	if len(loaded) == 0 {
		fmt.Fprintln(os.Stderr, "no packages")
		os.Exit(1)
	}
	fmt.Printf("%d packages\n", len(loaded))
}
