package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// heading is the heading in a release of the CHANGELOG under which the incompatible changes are listed.
const heading = "### Breaking changes"

// judge returns an error if the newest release of the CHANGELOG may not have these incompatible changes. A patch may have none. In any
// other release, and under a heading that is no version yet, each must be listed by its name, in backquotes.
func judge(broken []string, changelog, base string) error {
	if len(broken) == 0 {
		return nil
	}
	release := newest(changelog)
	title, _, _ := strings.Cut(release, "\n")
	if patch(title, base) {
		return fmt.Errorf("%q is a patch of %s: it may change nothing that can break a user's code", title, base)
	}
	_, listed, _ := strings.Cut(release, "\n"+heading+"\n")
	listed, _, _ = strings.Cut(listed, "\n### ")
	var err error
	for _, message := range broken {
		if name := symbol(message); !strings.Contains(listed, "`"+name+"`") {
			err = errors.Join(err, fmt.Errorf("CHANGELOG.md: list `%s` under %q of %q", name, heading, title))
		}
	}
	return err
}

// newest returns the first release of a CHANGELOG, which is the next one or the one that is being made. Its first line is the heading.
func newest(changelog string) string {
	_, release, _ := strings.Cut("\n"+changelog, "\n## ")
	release, _, _ = strings.Cut(release, "\n## ")
	return release
}

var version = regexp.MustCompile(`^v?(\d+\.\d+)\.\d+`)

// patch reports whether the heading of a release, such as "0.1.2 - 2027-01-31", has the same minor version as the base.
func patch(title, base string) bool {
	next, last := version.FindStringSubmatch(title), version.FindStringSubmatch(base)
	return next != nil && last != nil && next[1] == last[1]
}

// symbol returns the name that a message of apidiff begins with: outbox.Write of "./outbox.Write: removed", and the path of a package.
func symbol(message string) string {
	name, _, _ := strings.Cut(message, ": ")
	for _, prefix := range []string{"./", "package "} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}
