// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"os"
	"testing"

	"github.com/drover-project/drover/internal/agent/firmware"
)

// TestMessages: what a node's status says when firmware is not staged, after "Firmware is not
// staged: ".
func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		given func(n *node)
		then  string
	}{
		"another Module has staged another file": {
			func(n *node) { n.must(n.start().add("team/other", files{"x": "other"})) },
			"firmware file x is staged for team/other with other content; bring the same file for both, or rename one of them",
		},
		"another Module has a file where a directory is needed": {
			func(n *node) { n.must(n.start().add("team/other", files{"v": "other"})) },
			"firmware file v/y is staged for team/other with other content; bring the same file for both, or rename one of them",
		},
		"the host has another file": {
			func(n *node) { n.put(ours, files{"x": "host"}) },
			"firmware file /var/lib/firmware/x on the host has other content, and the agent did not stage it; " +
				"remove it there, or leave it out of the image",
		},
		"a staged file was changed": {
			func(n *node) {
				n.must(n.start().add("team/nic", files{"x": "old"}))
				n.must(os.WriteFile(n.host(ours, "x"), []byte("changed"), 0o600))
			},
			"firmware file /var/lib/firmware/x on the host was changed after the agent staged it; " +
				"remove it there, or leave it out of the image",
		},
		"the host has a link": {
			func(n *node) { n.put(ours, files{"x": "->/etc/passwd"}) },
			"firmware file /var/lib/firmware/x on the host is not a regular file (x is a symbolic link); " +
				"remove it there, or leave it out of the image",
		},
		"the directory cannot be made": {
			func(n *node) { n.put("/var", files{"lib": "a file"}) },
			"the agent cannot stage firmware in /var/lib/firmware on the host: create it: openat var/lib: not a directory; " +
				"mount it writable, or set another firmware directory",
		},
		"an administrator's directory is missing": {
			func(n *node) { n.must(n.path.SetFirmwarePath("/srv/none")) },
			"the agent cannot stage firmware in /srv/none, which somebody set as the kernel's firmware_class.path: " +
				"open it: openat srv/none: no such file or directory; set it to the agent's firmware directory, or clear it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c.given(n)
			err := n.start().add("team/nic", files{"x": "new", "v/y": "y"})
			if err == nil || err.Error() != c.then {
				t.Errorf("got:\n%v\nwant:\n%s", err, c.then)
			}
		})
	}
	n := newNode(t).start()
	for name, c := range map[string]struct {
		image files
		then  string
	}{
		"the agent's own name": {files{".drover/x": ""}, "DeliveryRefused: firmware: the agent itself uses the name .drover"},
		"a link":               {files{"x": "->y"}, "DeliveryRefused: firmware: x is a symbolic link"},
		"a control character":  {files{"a\nb": ""}, `DeliveryRefused: firmware: path "a\nb" has characters that are not printable`},
	} {
		t.Run("the image has "+name, func(t *testing.T) {
			if err := n.add("team/nic", c.image); err == nil || err.Error() != c.then {
				t.Errorf("got:\n%v\nwant:\n%s", err, c.then)
			}
		})
	}
	if _, err := firmware.Open(firmware.Options{Dir: "relative"}); err == nil ||
		err.Error() != `firmware directory: "relative" is not an absolute, clean directory name` {
		t.Error(err)
	}
}
