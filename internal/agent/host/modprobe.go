// SPDX-License-Identifier: Apache-2.0

package host

import "io/fs"

// ModprobeRequest is one run of kmod's modprobe.
type ModprobeRequest struct {
	// Args is the whole command line, without the program's name. It refers to the image's tree as /tmp<Dir>.
	Args []string
	// Dir is the image's directory (modprobe.dirName).
	Dir string
	// Image is the image's lib/modules/<Release()>.
	Image fs.FS
	// Modules that the command line names.
	Modules []string
	// LoadOrder is modprobe.modulesLoadingOrder.
	LoadOrder []string
	// For says who asks (namespace/name of the Module); only for journals.
	For string
}
