// SPDX-License-Identifier: Apache-2.0

// Package version holds the version that the linker puts into the binaries.
package version

// Version of this build; set with -ldflags "-X …/internal/shared/version.Version=v1.2.3".
var Version = "dev"

// UserAgent is the name under which a component talks to the API server, for example
// "drover-operator/v1.2.3". Audit logs and write budgets are counted by it.
func UserAgent(component string) string {
	return component + "/" + Version
}
