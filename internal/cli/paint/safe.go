// SPDX-License-Identifier: Apache-2.0

package paint

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/drover-project/drover/internal/shared/words"
)

// colours are the only sequences for a terminal that texts may have: those of a [Painter].
var colours = regexp.MustCompile("\x1b" + `\[(?:0|1|2|31|32|33)m`)

// safe is a stream for people.
type safe struct{ io.Writer }

// Safe is the stream with all that is written to it cleaned, colours aside: whatever names and
// messages a cluster or an image has, they do not steer the terminal. It is the last of several
// nets: see [words.Clean].
func Safe(out io.Writer) io.Writer { return safe{out} }

// Raw is the stream below, for what is no text, and for sequences that the caller makes itself.
func Raw(out io.Writer) io.Writer {
	if s, ok := out.(safe); ok {
		return s.Writer
	}
	return out
}

// Write implements io.Writer. Each call has whole characters.
func (s safe) Write(text []byte) (int, error) {
	var b strings.Builder
	rest := string(text)
	for rest != "" {
		at := colours.FindStringIndex(rest)
		if at == nil {
			at = []int{len(rest), len(rest)}
		}
		b.WriteString(words.Clean(rest[:at[0]]))
		b.WriteString(rest[at[0]:at[1]])
		rest = rest[at[1]:]
	}
	if _, err := io.WriteString(s.Writer, b.String()); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return len(text), nil
}
