// Package runbooks reads the commands in docs/runbooks, so that the tests of the programs can try them.
//
// It is for tests.
package runbooks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A Command is a line that a page tells the operator to run.
type Command struct {
	Page string
	Args []string // with the program
}

func (c Command) String() string { return c.Page + ": " + strings.Join(c.Args, " ") }

var inline = regexp.MustCompile("`([^`]+)`")

// Commands are those of a program in all pages of a folder: lines of code, and code within a line.
func Commands(folder, program string) (found []Command, err error) {
	pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			candidates := []string{strings.TrimSpace(line)}
			if !strings.HasPrefix(line, "    ") {
				candidates = nil
				for _, code := range inline.FindAllStringSubmatch(line, -1) {
					candidates = append(candidates, code[1])
				}
			}
			for _, one := range candidates {
				if !strings.HasPrefix(one, program+" ") {
					continue
				}
				args, err := split(one)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", page, one, err)
				}
				found = append(found, Command{filepath.Base(page), args})
			}
		}
	}
	return found, nil
}

var word = regexp.MustCompile(`^(?:"([^"]*)"|'([^']*)'|([^\s"'|<>&;$()]+))(?:\s+|$)`)

// split takes a line apart as a shell does, where it has words and quoted words only.
func split(line string) (args []string, err error) {
	for line != "" {
		m := word.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("neither a word nor a quoted one: %s", line)
		}
		args = append(args, m[1]+m[2]+m[3])
		line = line[len(m[0]):]
	}
	return args, nil
}
