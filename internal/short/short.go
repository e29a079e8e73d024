// Package short limits a run of the tests to some tests of a slow package: go test -short, and .ci/run where it runs the package whole
// in a later step.
package short

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Variable names the environment variable with folders of packages, such as "participant saga/coordinator", of which a run without -short
// runs the selection, too.
const Variable = "TROUPE_SHORT"

// Only makes a short run of a package run only these tests, unless -run selects others. TestMain calls it before the tests run.
func Only(tests ...string) {
	flag.Parse()
	if run := flag.Lookup("test.run"); Run() && run.Value.String() == "" {
		_ = flag.Set("test.run", "^("+strings.Join(tests, "|")+")$")
	}
}

// Run reports whether this run of the package's tests is short.
func Run() bool {
	folder, err := os.Getwd() // of the package
	return testing.Short() || err == nil && slices.ContainsFunc(strings.Fields(os.Getenv(Variable)), func(named string) bool {
		return strings.HasSuffix(filepath.ToSlash(folder), "/"+named)
	})
}
