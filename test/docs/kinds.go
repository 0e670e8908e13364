// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/drover-project/drover/test/docs/page"
)

// kind is what a block is, and by that how it is checked.
type kind int

const (
	unknown  kind = iota
	runs          // sh: a shell runs it
	service       // sh background until=TEXT: runs until the page's end
	output        // text: what the block before printed
	manifest      // yaml: the API server takes it
	compiles      // go: a whole file
	excerpt       // LANG from=FILE: stands in the file
	inCI          // sh ci: commands that .ci/run runs
	inTest        // LANG test=NAME: a transcript that a test holds to
	drawing       // text drawing: its names are names of the code
)

func (k kind) counted() string {
	return [...]string{"", "run", "run", "compared", "applied", "compiled", "excerpts", "ci", "tests", "drawings"}[k]
}

// allowed are the attributes that a kind may have.
var allowed = map[kind][]string{
	runs: {"exit"}, service: {"background", "until"}, output: {}, manifest: {"apply", "into", "kustomization", "save"},
	compiles: {}, excerpt: {"from"}, inCI: {"ci"}, inTest: {"test"}, drawing: {"drawing"},
}

func kindOf(b page.Block) (kind, error) {
	var k kind
	switch {
	case b.Has("from"):
		k = excerpt
	case b.Has("test"):
		k = inTest
	case b.Lang == "sh" && b.Has("ci"):
		k = inCI
	case b.Lang == "sh" && b.Has("background"):
		k = service
	case b.Lang == "sh":
		k = runs
	case b.Lang == "text" && b.Has("drawing"):
		k = drawing
	case b.Lang == "text":
		k = output
	case b.Lang == "yaml":
		k = manifest
	case b.Lang == "go":
		k = compiles
	default:
		return unknown, errors.New("the tag does not say what the block is; docs/guide/README.md lists the tags")
	}
	for name := range b.Attributes {
		if !slices.Contains(allowed[k], name) {
			return unknown, fmt.Errorf("the tag %s has no attribute %s", b.Lang, name)
		}
	}
	if k == service && b.Attributes["until"] == "" {
		return unknown, errors.New(`say until="TEXT": when is it up?`)
	}
	return k, nil
}

// static checks what needs no cluster: tags, excerpts, and names of commands, tests and parts.
func (c *checker) static(pages []*page.Page) {
	for _, p := range pages {
		c.say(p.Problems...)
		printed, section := false, "" // what a text block can be compared with: the output of the sh block before it, under its heading
		for _, b := range p.Blocks {
			k, err := kindOf(b)
			switch k {
			case output:
				if !printed || section != b.Section {
					err = errors.New("no sh block right before it, under the same heading, printed this")
				}
			case excerpt:
				err = c.excerpt(b)
			case inCI:
				err = c.commandsOfCI(b)
			case inTest:
				err = c.test(b.Attributes["test"])
			case drawing:
				err = c.names(b.Text)
			}
			printed, section = k == runs, b.Section
			switch {
			case err != nil:
				c.fail(b, err)
			case slices.Contains([]kind{excerpt, inCI, inTest, drawing}, k):
				c.done(k)
			}
		}
	}
}

func (c *checker) excerpt(b page.Block) error {
	source, err := os.ReadFile(filepath.Join(c.root, b.Attributes["from"]))
	if err != nil {
		return fmt.Errorf("the excerpt's source: %w", err)
	}
	return page.CheckExcerpt(b.Text, string(source))
}

var comment = regexp.MustCompile(`(^|\s+)#.*$`)

// commandsOfCI: each line is a command of .ci/run, before which that may set variables.
func (c *checker) commandsOfCI(b page.Block) error {
	script, err := os.ReadFile(filepath.Join(c.root, ".ci/run"))
	if err != nil {
		return fmt.Errorf("what CI runs: %w", err)
	}
	var commands []string
	for line := range strings.Lines(string(script)) {
		commands = append(commands, strings.TrimSpace(line))
	}
	for line := range strings.Lines(b.Text) {
		command := comment.ReplaceAllString(strings.TrimSpace(line), "")
		if command != "" && !slices.ContainsFunc(commands,
			func(has string) bool { return has == command || strings.HasSuffix(has, " "+command) }) {
			return fmt.Errorf(".ci/run does not run %q", command)
		}
	}
	return nil
}

var testName = regexp.MustCompile(`^Test[A-Za-z0-9_]+$`)

func (c *checker) test(name string) error {
	if !testName.MatchString(name) {
		return fmt.Errorf("%q is not the name of a test", name)
	}
	return c.mentioned("func "+name+"(", "no such test", "*_test.go")
}

// part is a name in a drawing: more than one word, or a word with capitals inside.
var part = regexp.MustCompile(`[A-Za-z]+(-[A-Za-z]+)+|[A-Z][a-z]+[A-Z][A-Za-z]*`)

func (c *checker) names(text string) error {
	for _, name := range part.FindAllString(text, -1) {
		if err := c.mentioned(name, "nothing in the code has this name", "*.go", "*.yaml"); err != nil {
			return err
		}
	}
	return nil
}

// mentioned says whether a file of a kind has the text.
func (c *checker) mentioned(text, otherwise string, files ...string) error {
	cmd := exec.Command("git", append([]string{"grep", "-qF", "--untracked", "-e", text, "--"}, files...)...)
	cmd.Dir = c.root
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %s %s", text, otherwise, said)
	}
	return nil
}
