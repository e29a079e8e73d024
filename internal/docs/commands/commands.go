// Package commands extracts the commands from the documents, so that tests can run them.
//
// A command is a line of a block (indented by four, or fenced as text, sh or nothing) or code within a sentence, that begins with
// the name of a program. In a block it may begin with "$ ", its output may follow it, and a line that ends with \ continues.
// Assignments before a program are its environment; && and | separate commands; text after > or # is ignored.
//
// Several tests run them: cmd/troupe runs troupe, internal/sidecar runs outbox-relay and psql, internal/docs checks go run, go
// test and the scripts of this repository. A failure names the page, the line and the error.
//
// The package is for tests.
package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Command is a command in a document.
type Command struct {
	Page   string // path from the root of the repository
	Line   int
	Prose  bool     // it is within a sentence, where values and arguments may be left out
	Env    []string // NAME=value
	Args   []string // the program first, with the name of its installed file: troupe, not go run ./cmd/troupe
	Script bool     // the program is a file of this repository
}

func (c Command) String() string {
	return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, strings.Join(c.Args, " "))
}

// madeFromTheProgram is a page that cmd/troupe parses by itself: it has usage lines between its commands.
const madeFromTheProgram = "docs/cli-reference.md"

// Pages returns all documents below the root of the repository.
func Pages(root string) (pages []string, err error) {
	pages = []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "examples/*/README.md"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, page := range more {
			page, err := filepath.Rel(root, page)
			if err != nil {
				return nil, err
			}
			if page = filepath.ToSlash(page); page != madeFromTheProgram {
				pages = append(pages, page)
			}
		}
	}
	return pages, nil
}

// Read returns the commands of all documents below the root of the repository, in order.
func Read(root string) (found []Command, err error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		of, err := Parse(page, string(text))
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	return found, nil
}

// Of returns the commands of a program.
func Of(all []Command, program string) []Command {
	return slices.DeleteFunc(slices.Clone(all), func(c Command) bool { return c.Args[0] != program })
}

var (
	inline = regexp.MustCompile("`([^`]+)`")
	fence  = regexp.MustCompile("^\\s*```(\\w*)")
)

// Parse returns the commands of one page.
func Parse(page, text string) (found []Command, err error) {
	fenced, language := false, ""
	lines := strings.Split(text, "\n")
	for n := 0; n < len(lines); n++ {
		line, at := lines[n], n+1
		if m := fence.FindStringSubmatch(line); m != nil {
			fenced, language = !fenced, m[1]
			continue
		}
		switch {
		case fenced && !slices.Contains([]string{"", "sh", "bash", "console", "text"}, language):
		case fenced || strings.HasPrefix(line, "    "):
			for strings.HasSuffix(line, `\`) && n+1 < len(lines) {
				n++
				line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[n])
			}
			for quoted(line) && n+1 < len(lines) && strings.HasPrefix(lines[n+1], "    ") {
				n++
				line += " " + strings.TrimSpace(lines[n])
			}
			found, err = appendLine(found, Command{Page: page, Line: at}, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		default:
			for _, code := range inline.FindAllStringSubmatch(line, -1) {
				if found, err = appendLine(found, Command{Page: page, Line: at, Prose: true}, code[1]); err != nil {
					break
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// ours maps the names of programs, including their names in a clone of this repository, to the program.
var ours = map[string]string{
	"troupe": "troupe", "bin/troupe": "troupe", "outbox-relay": "outbox-relay", "bin/outbox-relay": "outbox-relay", "go": "go", "psql": "psql",
}

var script = regexp.MustCompile(`^(\.ci|docker|devstack)/[\w./-]+$`)

func appendLine(found []Command, c Command, line string) ([]Command, error) {
	words, err := split(line)
	if err != nil {
		if first, _, _ := strings.Cut(line, " "); ours[first] != "" && !c.Prose {
			return nil, fmt.Errorf("%s:%d: %s: %w", c.Page, c.Line, line, err)
		}
		return found, nil // a line of output, or of another program
	}
	for len(words) > 0 {
		end := slices.IndexFunc(words, func(w word) bool { return w.joins })
		if end < 0 {
			end = len(words)
		}
		one := c
		for _, w := range words[:end] {
			switch {
			case len(one.Args) == 0 && assignment.MatchString(w.text):
				one.Env = append(one.Env, w.text)
			default:
				one.Args = append(one.Args, w.text)
			}
		}
		if one.named() {
			found = append(found, one)
		}
		words = words[min(end+1, len(words)):]
	}
	return found, nil
}

// named reports whether the command runs a program of ours, and replaces its name by the program's.
func (c *Command) named() bool {
	switch {
	case len(c.Args) == 0:
		return false
	case script.MatchString(c.Args[0]) && !c.Prose:
		c.Script = true
		return true
	case ours[c.Args[0]] == "":
		return false
	}
	c.Args[0] = ours[c.Args[0]]
	if len(c.Args) > 2 && c.Args[0] == "go" && c.Args[1] == "run" {
		if program := ours[strings.TrimPrefix(c.Args[2], "./cmd/")]; program != "" && strings.HasPrefix(c.Args[2], "./cmd/") {
			c.Args = append([]string{program}, c.Args[3:]...)
		}
	}
	return true
}

// quoted reports whether a command's line ends within quotes, and continues in the next line.
func quoted(line string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " ")
	return ours[first] != "" && strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 == 1
}

// A word is a word of a line. One that joins separates commands.
type word struct {
	text  string
	joins bool
}

var (
	assignment = regexp.MustCompile(`^[A-Z][A-Z0-9_]*=`)
	blank      = regexp.MustCompile(`^\s+`)
	piece      = regexp.MustCompile(`^(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"'|<>&;()#]+|#))`)
	escaped    = regexp.MustCompile(`\\(["\\$])`)
	joint      = regexp.MustCompile(`^(\|\||&&|\||;)`)
	redirect   = regexp.MustCompile(`^[<>]+\s*\S+`)
)

// split splits a line as a shell does, for words, quotes, joints and redirections only.
func split(line string) (words []word, err error) {
	within := false // a word
	for line != "" {
		switch {
		case blank.MatchString(line):
			line, within = line[len(blank.FindString(line)):], false
			if strings.HasPrefix(line, "#") {
				return words, nil
			}
		case joint.MatchString(line):
			words, within = append(words, word{joins: true}), false
			line = line[len(joint.FindString(line)):]
		case redirect.MatchString(line):
			line, within = line[len(redirect.FindString(line)):], false
		default:
			m := piece.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("neither a word nor a quoted one: %s", line)
			}
			if !within {
				words = append(words, word{})
			}
			words[len(words)-1].text += escaped.ReplaceAllString(m[1], "$1") + m[2] + m[3]
			line, within = line[len(m[0]):], true
		}
	}
	return words, nil
}
