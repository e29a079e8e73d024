package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// breakingHeading is the heading under which a release of the CHANGELOG lists its incompatible changes.
const breakingHeading = "### Breaking changes"

// checkChangelog returns an error if the newest release of the CHANGELOG may not have these incompatible changes, given as messages of apidiff.
// A patch may have none. Any other release, also an unreleased one, must list the name of each, in backquotes.
func checkChangelog(incompatible []string, changelog, base string) error {
	if len(incompatible) == 0 {
		return nil
	}
	release := newestRelease(changelog)
	title, _, _ := strings.Cut(release, "\n")
	if isPatch(title, base) {
		return fmt.Errorf("%q is a patch of %s: it may change nothing that can break a user's code", title, base)
	}
	_, listed, _ := strings.Cut(release, "\n"+breakingHeading+"\n")
	listed, _, _ = strings.Cut(listed, "\n### ")
	var err error
	for _, message := range incompatible {
		if name := nameOf(message); !strings.Contains(listed, "`"+name+"`") {
			err = errors.Join(err, fmt.Errorf("CHANGELOG.md: list `%s` under %q of %q", name, breakingHeading, title))
		}
	}
	return err
}

// newestRelease returns the first section of a CHANGELOG: the next release, or the one that is being made. Its first line is the heading.
func newestRelease(changelog string) string {
	_, release, _ := strings.Cut("\n"+changelog, "\n## ")
	release, _, _ = strings.Cut(release, "\n## ")
	return release
}

var version = regexp.MustCompile(`^v?(\d+\.\d+)\.\d+`)

// isPatch reports whether the heading of a release, such as "0.1.2 - 2027-01-31", has the same minor version as the base.
func isPatch(title, base string) bool {
	next, last := version.FindStringSubmatch(title), version.FindStringSubmatch(base)
	return next != nil && last != nil && next[1] == last[1]
}

// nameOf returns the name at the beginning of a message of apidiff: outbox.Write for "./outbox.Write: removed", and the path for a package.
func nameOf(message string) string {
	name, _, _ := strings.Cut(message, ": ")
	for _, prefix := range []string{"./", "package "} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}
