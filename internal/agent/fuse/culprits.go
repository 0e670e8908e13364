// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// Before a line: "<4>", "[   12.345678]", "[  T123]", "[ C0]".
	linePrefix = regexp.MustCompile(`^(?:<\d+>)?(?:\[\s*\d+\.\d+\]\s?)?(?:\[\s*[TC]\d+\]\s?)?`)
	// What every architecture's die() prints, with its counter: "Oops: 0002 [#1] PREEMPT SMP".
	dieLine = regexp.MustCompile(`(?:Oops|BUG|Internal error:|: [0-9a-f]{4,16}(?: ilc:\d+)?)[^\[]*\[#\d+\]`)
	// Where the kernel was: x86 RIP and EIP, arm64 pc, arm PC, riscv epc, powerpc NIP, s390 PSW.
	pcLine = regexp.MustCompile(`^(?:RIP: [0-9a-f]{4}:|RIP |EIP:(?: [0-9a-f]{4}:)?|pc :|PC is at|epc :|NIP|Krnl PSW : [^(]*\()` +
		addresses + symbol)
	// A frame of a trace, with "?" before or "(unreliable)" after it if it is a guess.
	frameLine = regexp.MustCompile(`^\s*\(?` + addresses + `\(?(\? )?` + symbol + `(.*)`)
	// A word of "Modules linked in:": name, taints, "+" for coming and "-" for going.
	listedModule = regexp.MustCompile(`^([\w-]+)(?:\(([A-Z]*)([+-]?)\))?$`)
)

// addresses matches "[<ffffffffc0a3f015>] ", any number of them.
const addresses = `\s*(?:\[<?[0-9a-f]+>?\]\s*)*`

// symbol matches "function+0x12/0x34 [module build-id]" by groups for function and module.
const symbol = `([\w.$]+)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[([\w-]+)(?: [0-9a-f]+)?\])?`

var (
	// Panics that say nothing about the module that happened to run.
	innocentPanics = []string{"sysrq", "machine check", "Machine Check", "Hardware Error", "NMI", "Out of memory", "hung_task"}
	// Panics in an interrupt that accuse what was interrupted.
	stuckPanics = []string{"softlockup", "LOCKUP", "RCU Stall"}
	// Frames on arm64 below which is what was interrupted.
	interruptFrames = []string{"el1_irq", "el1h_64_irq"}
)

// Culprits returns the modules that a kernel's dump names as the causes of its crashes, each once,
// in the order of the crashes. Of a crash (a die, "[#1]", or a panic) that is the module of the
// program counter; else of the first frame of the trace that is in a module; else the only module
// that was being loaded. What an interrupt interrupted counts only if it was stuck. Warnings name
// nobody, nor do panics that a person, the hardware or a lack of memory caused.
//
// dump is text such as pstore's dmesg-ramoops-0, of any architecture, its parts joined.
func Culprits(dump string) []string {
	r := reader{now: &crash{}}
	for line := range strings.Lines(dump) {
		line = linePrefix.ReplaceAllString(strings.TrimRight(line, " \r\n"), "")
		if !r.begins(line) && r.now != nil {
			r.now.line(line)
		}
	}
	r.end()
	return r.found
}

// reader goes through the reports of a dump.
type reader struct {
	found []string
	now   *crash // the report that lines belong to; nil: it is of no interest
	// last place in the kernel outside of a report: a dump may begin after a report's head, and x86
	// repeats its place after its end, right before the panic.
	last string
}

// begins tells whether the line begins or ends a report.
func (r *reader) begins(line string) bool {
	switch {
	case strings.Contains(line, "Kernel panic - not syncing"):
		r.end()
		if strings.Contains(line, "Fatal exception") && r.last != "" {
			r.add(r.last)
		}
		r.now = &crash{fatal: true, innocent: containsAny(line, innocentPanics), stuck: containsAny(line, stuckPanics)}
	case dieLine.MatchString(line):
		r.end()
		r.now = &crash{fatal: true}
	case strings.HasPrefix(line, "------------[ cut here"), strings.HasPrefix(line, "WARNING:"),
		strings.HasPrefix(line, "NMI backtrace for cpu"):
		r.end()
		r.now = nil
	case strings.HasPrefix(line, "---[ end "):
		r.end()
		r.now = &crash{}
	default:
		return false
	}
	return true
}

func (r *reader) end() {
	if r.now == nil {
		r.last = ""
		return
	}
	if r.now.at != "" || r.now.fatal {
		r.last = r.now.at
	}
	if r.now.fatal {
		r.add(r.now.culprit())
	}
}

func (r *reader) add(module string) {
	if module = normalName(module); module != "" && !slices.Contains(r.found, module) {
		r.found = append(r.found, module)
	}
}

func containsAny(line string, words []string) bool {
	return slices.ContainsFunc(words, func(s string) bool { return strings.Contains(line, s) })
}

// crash is one report of a dump, or what lies between two.
type crash struct {
	fatal           bool // it is a die or a panic
	innocent, stuck bool
	// at is the first module that the program counter or, in a fatal one, a frame is in.
	at      string
	over    bool // what follows in the trace is what was interrupted
	coming  []string
	listing bool // the list of modules may go on in this line
}

func (c *crash) line(line string) {
	if rest, ok := strings.CutPrefix(line, "Modules linked in:"); ok {
		c.coming, c.listing = nil, true
		c.list(rest)
		return
	}
	if c.listing = c.listing && c.list(line); c.listing {
		return
	}
	if text := strings.TrimSpace(line); strings.HasPrefix(text, "</") || strings.HasPrefix(text, "--- interrupt") {
		c.over = true
	} else if m := pcLine.FindStringSubmatch(line); m != nil {
		c.place(m[1], m[2])
	} else if m := frameLine.FindStringSubmatch(line); m != nil && c.fatal {
		if guess := m[1] != "" || strings.Contains(m[4], "unreliable"); !guess {
			c.place(m[2], m[3])
		}
	}
}

func (c *crash) place(function, module string) {
	c.innocent = c.innocent || strings.HasPrefix(function, "sysrq_")
	c.over = c.over || slices.Contains(interruptFrames, function)
	if c.at == "" && (!c.over || c.stuck) {
		c.at = module
	}
}

// list notes the modules in coming state among the words; it tells whether all words are modules.
func (c *crash) list(words string) bool {
	words, _, _ = strings.Cut(words, "[last unloaded:")
	for word := range strings.FieldsSeq(words) {
		m := listedModule.FindStringSubmatch(word)
		if m == nil {
			return false
		}
		if m[3] == "+" {
			c.coming = append(c.coming, m[1])
		}
	}
	return true
}

func (c *crash) culprit() string {
	switch {
	case c.innocent:
		return ""
	case c.at == "" && len(c.coming) == 1:
		return c.coming[0]
	default:
		return c.at
	}
}
