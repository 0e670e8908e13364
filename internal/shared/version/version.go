// SPDX-License-Identifier: Apache-2.0

// Package version holds what the linker puts into the binaries: their version, and the registry
// that has their images.
package version

// Version of this build; set with -ldflags "-X …/internal/shared/version.Version=v1.2.3".
var Version = "dev"

// Registry has the images of this build, as REGISTRY/drover/NAME; set with -ldflags
// "-X …/internal/shared/version.Registry=registry.example.com/you". The registry of other builds
// resolves nowhere (RFC 2606), so that a name without one cannot be that of a stranger's image.
var Registry = "registry.invalid"

// UserAgent is the name under which a component talks to the API server, for example
// "drover-operator/v1.2.3". Audit logs and write budgets are counted by it.
func UserAgent(component string) string {
	return component + "/" + Version
}
