// Command apicheck compares the packages that users import with the last release. It fails if a change can break their code and the
// CHANGELOG does not list it under "### Breaking changes", or if the next release is a patch. Before the first release there is
// nothing to compare with. docs/releases.md has the policy.
//
//	go run -C internal/apicheck .                  compare with the last tag v*, release candidates left out
//	go run -C internal/apicheck . --base COMMIT    compare with a commit
//
// It is a separate module, so that the module that users import does not require its libraries.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
)

func main() {
	root := flag.String("root", "../..", "`folder` of the module")
	base := flag.String("base", "", "`commit` to compare with (default: the last release's tag)")
	flag.Parse()
	if err := run(os.Stdout, *root, *base); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, root, base string) error {
	if base == "" {
		tags, err := git(root, "tag", "--merged", "HEAD", "--list", "v*", "--sort=-version:refname")
		if err != nil {
			return err
		}
		releases := slices.DeleteFunc(strings.Fields(tags), func(tag string) bool { return strings.Contains(tag, "-") })
		if len(releases) == 0 {
			fmt.Fprintln(out, "no release yet: there is nothing to compare the API with")
			return nil
		}
		base = releases[0]
	}
	earlier, err := os.MkdirTemp("", "apicheck")
	if err != nil {
		return err
	}
	defer os.RemoveAll(earlier)
	if err := extract(root, base, earlier); err != nil {
		return err
	}
	before, err := load(earlier)
	if err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	after, err := load(root)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	var incompatible []string
	compatible := 0
	for _, c := range apidiff.ModuleChanges(before, after).Changes {
		if c.Compatible {
			compatible++
			continue
		}
		incompatible = append(incompatible, strings.ReplaceAll(c.Message, after.Path+"/", ""))
	}
	fmt.Fprintf(out, "%d packages compared with %s: %d compatible changes, %d incompatible\n", len(after.Packages), base, compatible, len(incompatible))
	for _, message := range incompatible {
		fmt.Fprintln(out, "  "+message)
	}
	return checkChangelog(incompatible, string(changelog), base)
}

// git returns the output of a git command without the last newline.
func git(root string, args ...string) (string, error) {
	command := exec.Command("git", args...)
	command.Dir = root
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimRight(string(output), "\n"), nil
}

// extract writes the files of a commit to a folder.
func extract(root, commit, folder string) error {
	archive := filepath.Join(folder, ".apicheck.tar")
	if _, err := git(root, "archive", "--output", archive, commit); err != nil {
		return err
	}
	output, err := exec.Command("tar", "-x", "-C", folder, "-f", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("tar: %w: %s", err, output)
	}
	return nil
}
