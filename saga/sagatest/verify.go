package sagatest

import (
	"testing"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// Verify fails t for each finding of the verifier, warnings included, in each of the definitions and in all of them together. It
// checks the rules of troupe saga verify (docs/verifier.md) and runs nothing.
func Verify(t testing.TB, defs ...*saga.Definition) {
	t.Helper()
	together := verify.Together(defs)
	for i, d := range defs {
		for _, f := range append(verify.Definition(d, verify.Options{}), together[i]...) {
			t.Errorf("saga %s: %s", d, f)
		}
	}
}
