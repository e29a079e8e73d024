// Package commands reads the commands that the documents tell people to run, so that tests can try them.
//
// A command is a line of a block (indented by four, or fenced as text, sh or nothing) or code within a sentence, that begins
// with the name of a program. In a block "$ " may stand before it, what it printed below it, and a line that ends with \ goes on.
// Assignments before a program are its environment; what && and | join are commands of their own; what stands behind > or # is
// not read.
//
// Who tries what: cmd/troupe runs troupe, internal/sidecar outbox-relay and psql, internal/docs looks at go run, go test and the
// scripts of this repository. Each names the place that is wrong, and what is wrong with it.
//
// It is for tests.
package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Command is what a document tells people to run.
type Command struct {
	Page   string // from the root of the repository
	Line   int
	Prose  bool     // it stands within a sentence, where values and arguments may be left out
	Env    []string // NAME=value
	Args   []string // the program first, as it is called where it is installed: troupe, not go run ./cmd/troupe
	Script bool     // the program is a file of this repository
}

func (c Command) String() string {
	return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, strings.Join(c.Args, " "))
}

// madeFromTheProgram is a page whose commands cmd/troupe takes from where the page has them: there are usage lines between them.
const madeFromTheProgram = "docs/cli-reference.md"

// Pages are all documents below the root of the repository.
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

// Read gives the commands of all documents below the root of the repository, in their order.
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

// Of is those of a program.
func Of(all []Command, program string) []Command {
	return slices.DeleteFunc(slices.Clone(all), func(c Command) bool { return c.Args[0] != program })
}

var (
	inline = regexp.MustCompile("`([^`]+)`")
	fence  = regexp.MustCompile("^\\s*```(\\w*)")
)

// Parse gives the commands of one page.
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

// ours are the programs of which a line is a command, as they are called in a clone of this repository too.
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

// named says whether the command is of a program of ours, and calls it by its name.
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

// quoted says whether a command's line ends within quotes, and goes on in the next one.
func quoted(line string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " ")
	return ours[first] != "" && strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 == 1
}

// A word of a line; one that joins is not part of a command.
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

// split takes a line apart as a shell does, where it has words, quotes, joints and redirections only.
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
