// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// without are the programs that have no flags: asked for help, they would do their work.
var without = map[string]string{
	"drover-kcall": "makes one kernel call: a request on standard input, an answer on standard output",
	"lolcow":       "says its arguments; `$PORT` and `$LOLCOW_ONCE` set the rest",
}

// command is a program, or one of its commands.
type command struct {
	// Name with the program's before it, such as drover explain.
	Name, Short string
	Flags       []programFlag
}

type programFlag struct{ Name, Short, Type, Default, Meaning string }

// readPrograms asks each program of cmd for its flags. Without a folder where they lie, they are
// compiled first.
func readPrograms(ctx context.Context, root, dir string) ([]command, error) {
	entries, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		return nil, fmt.Errorf("list the programs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && without[e.Name()] == "" {
			names = append(names, e.Name())
		}
	}
	if dir == "" {
		dir = filepath.Join(root, ".cache", "reference")
		if err := compile(ctx, root, dir, names); err != nil {
			return nil, err
		}
	}
	var all []command
	for _, name := range names {
		found, err := ask(ctx, filepath.Join(dir, name), name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// compile programs into a folder. Those that lie there and have not changed stay.
func compile(ctx context.Context, root, dir string, names []string) error {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find the folder of the programs: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", absolute+string(filepath.Separator))
	build.Dir = root
	for _, name := range names {
		build.Args = append(build.Args, "./cmd/"+name)
	}
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the programs: %w\n%s", err, said)
	}
	return nil
}

// ask returns a program's commands, the program itself first.
func ask(ctx context.Context, program string, words ...string) ([]command, error) {
	help := exec.CommandContext(ctx, program, append(slices.Clone(words[1:]), "--help")...)
	// Nothing of this machine becomes a default.
	help.Env = []string{"HOME=/root", "PATH=" + os.Getenv("PATH")}
	said, err := help.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ask %s for help: %w\n%s", strings.Join(words, " "), err, said)
	}
	c, inner, err := parseHelp(string(said))
	if err != nil {
		return nil, fmt.Errorf("help of %s: %w", strings.Join(words, " "), err)
	}
	c.Name = strings.Join(words, " ")
	all := []command{c}
	for _, name := range inner {
		found, err := ask(ctx, program, append(slices.Clone(words), name)...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

var (
	// aCommand is a line of cobra's list of commands.
	aCommand = regexp.MustCompile(`^  ([a-z][\w-]*) +\S`)
	// aFlag is a line of pflag's, goFlag one of package flag's.
	aFlag  = regexp.MustCompile(`^ {2,6}(?:-(\w), )?--([\w-]+)(?: (\S+))?(?: {2,}(.*))?$`)
	goFlag = regexp.MustCompile(`^  -([\w-]+)(?: (\w+))?(?:\t(.*))?$`)
	// aDefault stands at the end of a meaning.
	aDefault = regexp.MustCompile(`(?s) ?\(default (.*)\)$`)
)

// parseHelp reads what cobra or package flag print about a program: what it is, its flags, and the
// names of its commands.
func parseHelp(said string) (c command, commands []string, err error) {
	section := "what"
	if paragraph, _, _ := strings.Cut(said, "\n\n"); !strings.HasPrefix(paragraph, "Usage") {
		c.Short = firstSentence(paragraph)
	}
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "Use \""):
			section = "end"
		case line != "" && !strings.HasPrefix(line, " ") && strings.HasSuffix(line, ":"):
			section = strings.TrimSuffix(line, ":")
			if strings.HasPrefix(section, "Usage of ") {
				section = "Flags"
			}
		case section == "Available Commands":
			if m := aCommand.FindStringSubmatch(line); m != nil && m[1] != "help" {
				commands = append(commands, m[1])
			}
		case section == "Flags" && strings.TrimSpace(line) != "":
			if err := c.take(line); err != nil {
				return c, nil, err
			}
		}
	}
	c.finish()
	if len(c.Flags) == 0 && len(commands) == 0 && section == "what" {
		return c, nil, errors.New("no flag and no command was found")
	}
	return c, commands, nil
}

// take reads one line of a list of flags.
func (c *command) take(line string) error {
	if m := aFlag.FindStringSubmatch(line); m != nil {
		c.Flags = append(c.Flags, programFlag{Short: m[1], Name: m[2], Type: m[3], Meaning: m[4]})
		return nil
	}
	if m := goFlag.FindStringSubmatch(line); m != nil {
		c.Flags = append(c.Flags, programFlag{Name: m[1], Type: m[2], Meaning: m[3]})
		return nil
	}
	if len(c.Flags) == 0 || !strings.HasPrefix(line, "    ") {
		return fmt.Errorf("a line that is not a flag: %q", line)
	}
	if strings.HasPrefix(strings.TrimSpace(line), "--") {
		return fmt.Errorf("a flag whose value is not one word: %q", line)
	}
	last := &c.Flags[len(c.Flags)-1]
	last.Meaning = strings.TrimSpace(last.Meaning + " " + strings.TrimSpace(line))
	return nil
}

// finish parts defaults from meanings, and leaves out the flag for help, which every program has.
func (c *command) finish() {
	for i := range c.Flags {
		f := &c.Flags[i]
		if m := aDefault.FindStringSubmatchIndex(f.Meaning); m != nil {
			f.Default = strings.Trim(f.Meaning[m[2]:m[3]], `"`)
			f.Meaning = f.Meaning[:m[0]]
		}
	}
	c.Flags = slices.DeleteFunc(c.Flags, func(f programFlag) bool { return f.Name == "help" })
	slices.SortFunc(c.Flags, func(a, b programFlag) int { return strings.Compare(a.Name, b.Name) })
}

// flagsPage lists the flags of all programs.
func flagsPage(commands []command) (page string, undocumented []string) {
	var b strings.Builder
	b.WriteString("# Flags\n\n" + wrap("Every flag of every program, from the programs' own help (`--help`): "+
		"`make manifests` writes this page. A flag of a program that has commands works for each of them. "+
		"`drover` also takes the rarer flags of kubectl, such as `--token`.") + "\n")
	for _, c := range commands {
		if len(c.Flags) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## `%s`\n\n", c.Name)
		if strings.Contains(c.Name, " ") {
			b.WriteString(wrap(text(c.Short)) + "\n\n")
		}
		b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
		for _, f := range c.Flags {
			if f.Meaning == "" {
				undocumented = append(undocumented, c.Name+" --"+f.Name)
			}
			spelled, value := code("--"+f.Name), ""
			if f.Short != "" {
				spelled += ", " + code("-"+f.Short)
			}
			if f.Default != "" {
				value = code(f.Default)
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", spelled, value, text(f.Meaning))
		}
	}
	b.WriteString("\n## Programs without flags\n\n")
	for _, name := range slices.Sorted(maps.Keys(without)) {
		b.WriteString(strings.ReplaceAll(wrap("- "+code(name)+" "+without[name]+"."), "\n", "\n  ") + "\n")
	}
	return b.String(), undocumented
}
