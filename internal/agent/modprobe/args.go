// SPDX-License-Identifier: Apache-2.0

// Package modprobe runs kmod's modprobe: with the command lines that upstream's users know, in the
// directory layout that these are written for, and it reads what the program says.
//
// A command line names the image's tree /tmp<dirName>, and the host's modules /host/lib/modules or
// /lib/modules. Stage lays out the first for one call; the agent's pod mounts the others.
package modprobe

import (
	"path"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// Temp is where command lines expect the image's tree.
const Temp = "/tmp"

// Wanted tells whether a Module's settings ask for the program itself. Empty lists count as unset:
// clients written in Go send them.
func Wanted(s *v1beta1.ModprobeSpec) bool { return !none(s.Args) || Raw(s) }

// Raw tells whether the command lines are the user's own, word for word.
func Raw(s *v1beta1.ModprobeSpec) bool { return !none(s.RawArgs) }

func none(a *v1beta1.ModprobeArgs) bool { return a == nil || len(a.Load) == 0 && len(a.Unload) == 0 }

// LoadArgs is the command line of a load, without the program's name.
func LoadArgs(s *v1beta1.ModprobeSpec) []string {
	if s.RawArgs != nil && len(s.RawArgs.Load) > 0 {
		return slices.Clone(s.RawArgs.Load)
	}
	args := []string{"-vd", path.Join(Temp, s.DirName)}
	if s.Args != nil {
		args = append(args, s.Args.Load...)
	}
	args = append(args, s.ModuleName)
	return append(args, s.Parameters...)
}

// UnloadArgs is the command line of an unload.
func UnloadArgs(s *v1beta1.ModprobeSpec) []string {
	if s.RawArgs != nil && len(s.RawArgs.Unload) > 0 {
		return slices.Clone(s.RawArgs.Unload)
	}
	args := []string{"-rvd", path.Join(Temp, s.DirName)}
	if s.Args != nil {
		args = append(args, s.Args.Unload...)
	}
	if len(s.ModulesLoadingOrder) > 0 {
		return append(args, s.ModulesLoadingOrder...)
	}
	return append(args, s.ModuleName)
}

// Main is the module in question: moduleName, or the first of rawArgs.load; "" if there is none.
func Main(s *v1beta1.ModprobeSpec) string {
	if s.ModuleName != "" || !Raw(s) {
		return kmod.NormalizeName(s.ModuleName)
	}
	if names := Parse(s.RawArgs.Load).Modules; len(names) > 0 {
		return names[0]
	}
	return ""
}

// Call is what a command line asks for, as far as the agent must know.
type Call struct {
	Remove  bool     // it removes modules instead of loading them
	Force   bool     // the kernel ignores vermagic or symbol versions that do not fit
	Modules []string // names, normalised
	Params  []string
	// Paths are what it names of files: values of -d and -C, and modules that are named by a file.
	Paths []string
	// Versions are the values of -S, each a directory's name.
	Versions []string
}

const (
	// shortWithValue are short options with a value: the rest of the word, or the next one.
	shortWithValue = "CdSw"
	// shortAll makes every word a module; so does shortRemove.
	shortAll, shortRemove, shortForce = 'a', 'r', 'f'
)

// longWithValue are the long options that take a value, after "=" or as the next word, by the short
// options that mean the same.
var longWithValue = map[string]rune{"config": 'C', "dirname": 'd', "set-version": 'S', "wait": 'w'}

// Parse reads a command line as modprobe does: options may stand anywhere before "--".
func Parse(args []string) Call {
	var c Call
	var words []string
	all := false
	for i := 0; i < len(args); i++ {
		word := args[i]
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case word == "--":
			words = append(words, args[i+1:]...)
			i = len(args)
		case strings.HasPrefix(word, "--"):
			if c.long(word[2:], next, &all) {
				i++
			}
		case len(word) > 1 && word[0] == '-':
			if c.short(word[1:], next, &all) {
				i++
			}
		default:
			words = append(words, word)
		}
	}
	all = all || c.Remove
	for i, word := range words {
		if i > 0 && !all {
			c.Params = words[i:]
			break
		}
		if strings.Contains(word, "/") {
			c.Paths = append(c.Paths, word)
		}
		c.Modules = append(c.Modules, kmod.NormalizeName(word))
	}
	return c
}

// long reads a long option, or its beginning. It tells whether the next word is its value.
func (c *Call) long(word, next string, all *bool) bool {
	name, value, assigned := strings.Cut(word, "=")
	begins := func(option string) bool { return name != "" && strings.HasPrefix(option, name) }
	switch {
	case begins("remove"):
		c.Remove = true
	case begins("all"):
		*all = true
	case strings.HasPrefix(name, "force"):
		c.Force = true
	}
	takes := false
	for option, short := range longWithValue {
		if begins(option) {
			takes = true
			if !assigned {
				value = next
			}
			c.value(short, value)
		}
	}
	return takes && !assigned
}

// short reads a word of short options. It tells whether the next word is the value of the last one.
func (c *Call) short(word, next string, all *bool) bool {
	for i, option := range word {
		switch option {
		case shortRemove:
			c.Remove = true
		case shortAll:
			*all = true
		case shortForce:
			c.Force = true
		}
		if strings.ContainsRune(shortWithValue, option) {
			rest := word[i+1:]
			if rest == "" {
				c.value(option, next)
				return true
			}
			c.value(option, rest)
			return false
		}
	}
	return false
}

// value takes in the value of an option.
func (c *Call) value(option rune, value string) {
	switch option {
	case 'C', 'd':
		c.Paths = append(c.Paths, value)
	case 'S':
		c.Versions = append(c.Versions, value)
	}
}

// open are the directories whose files a command line may name, with what is below them: the
// image's tree, the host's modules, and what came with the program itself.
var open = []string{Temp, "/host/lib", "/lib", "/usr/lib", "/etc"}

// Strays is the first thing that a command line names outside of the image's tree and the host's
// modules; empty: there is none. The agent sees more of the node than KMM's worker does, which
// these command lines are written for: /var/lib/kubelet/pods, where any pod can put files, and
// /proc, by which one reaches the files of every container.
func Strays(args []string) string {
	call := Parse(args)
	for _, name := range call.Paths {
		if !within(name) {
			return name
		}
	}
	for _, version := range call.Versions { // it becomes <dir>/lib/modules/<version>
		if version == ".." || strings.Contains(version, "/") {
			return version
		}
	}
	return ""
}

func within(name string) bool {
	if slices.Contains(strings.Split(name, "/"), "..") { // the kernel follows links before it goes up
		return false
	}
	switch name = path.Join("/", name); name {
	case "/", "/host", "/dev/null":
		return true
	}
	return slices.ContainsFunc(open, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}
