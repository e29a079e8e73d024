package scaffold

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// direct lists the modules that the files import, besides Troupe's.
var direct = []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog", "github.com/stretchr/testify"}

var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`)

// modules returns go.mod and go.sum with the versions that the checkout is tested with, so that the service builds without
// looking up versions in the network. The path of the checkout is in go.work, so that go.mod fits every machine.
func (s Service) modules() ([]File, error) {
	own, err := os.ReadFile(filepath.Join(s.Troupe, "go.mod"))
	if err != nil || !strings.HasPrefix(string(own), "module "+module+"\n") {
		return nil, fmt.Errorf("%q is no checkout of %s: want the folder with its go.mod", s.Troupe, module)
	}
	sums, err := os.ReadFile(filepath.Join(s.Troupe, "go.sum"))
	if err != nil {
		return nil, err
	}
	direct := direct
	if s.Proto {
		direct = append([]string{"google.golang.org/protobuf"}, direct...)
	}
	version := regexp.MustCompile(`(?m)^go \S+$`).FindString(string(own))
	var b, rest strings.Builder
	fmt.Fprintf(&b, "module %s\n\n%s\n\nrequire (\n", s.Module, version)
	for _, r := range requirement.FindAllStringSubmatch(string(own), -1) {
		if slices.Contains(direct, r[1]) {
			fmt.Fprintf(&b, "\t%s %s\n", r[1], r[2])
		} else {
			fmt.Fprintf(&rest, "\t%s %s // indirect\n", r[1], r[2])
		}
	}
	fmt.Fprintf(&b, "\t%s %s\n)\n", module, checkoutVersion(s.Troupe))
	replace := fmt.Sprintf("replace %s => %s\n", module, quoted(s.Path))
	if s.Replace {
		fmt.Fprintf(&b, "\n// A path of this machine: remove it when Troupe is released.\n%s", replace)
	}
	fmt.Fprintf(&b, "\n// All modules of Troupe's programs and tests, so that the service builds without looking up versions. go mod tidy removes the unused ones.\nrequire (\n%s)\n", rest.String())
	files := []File{{"go.mod", []byte(b.String())}, {"go.sum", sums}}
	if !s.Replace {
		files = append(files, File{"go.work", fmt.Appendf(nil,
			"// Troupe's source on this machine. Do not commit this file; remove it when Troupe is released.\n%s\n\nuse .\n\n%s", version, replace)})
	}
	return files, nil
}

// checkoutVersion returns the pseudo-version of a checkout's commit, or v0.0.0 if git does not know it.
func checkoutVersion(folder string) string {
	cmd := exec.Command("git", "-C", folder, "log", "-1", "--format=%cd %H", "--date=format-local:%Y%m%d%H%M%S")
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.Output()
	at, commit, ok := bytes.Cut(bytes.TrimSpace(out), []byte(" "))
	if err != nil || !ok || len(commit) < 12 {
		return "v0.0.0"
	}
	return fmt.Sprintf("v0.0.0-%s-%s", at, commit[:12])
}

// quoted returns a path in the syntax of go.mod.
func quoted(path string) string {
	if strings.ContainsAny(path, " \t\"'`(),") {
		return strconv.Quote(path)
	}
	return path
}
