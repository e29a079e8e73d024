// Package short limits go test -short to some tests of a slow package.
package short

import (
	"flag"
	"strings"
	"testing"
)

// Only makes go test -short run only these tests of a package, unless -run selects others. TestMain calls it before the tests run.
func Only(tests ...string) {
	flag.Parse()
	if run := flag.Lookup("test.run"); testing.Short() && run.Value.String() == "" {
		_ = flag.Set("test.run", "^("+strings.Join(tests, "|")+")$")
	}
}
