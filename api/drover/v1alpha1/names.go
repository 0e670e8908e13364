// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// ImageLabel is on the Jobs of a ModuleImage and on their pods, with the ModuleImage's name.
	ImageLabel = "drover.dev/module-image"

	// ImagePrefix begins the name of every ModuleImage and of its Jobs.
	ImagePrefix = "drover-image-"
)
