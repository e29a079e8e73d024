package verify_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/flow/verify"
)

var rewrite = flag.Bool("update", false, "write the rules in docs/flow-reference.md")

const (
	referenceFile = "../../../docs/flow-reference.md"
	rulesBegin    = "<!-- rules: written by go test ./internal/flow/verify -run Reference -update -->\n"
	rulesEnd      = "<!-- end of rules -->\n"
)

func TestTheReferencesRulesAreTheVerifiers(t *testing.T) {
	text, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	head, rest, begun := strings.Cut(string(text), rulesBegin)
	have, foot, ended := strings.Cut(rest, rulesEnd)
	require.True(t, begun && ended, "docs/flow-reference.md has lost the lines around its rules")
	var b strings.Builder
	b.WriteString("\n## Rules\n\n| rule | severity | what is wrong | effect |\n| --- | --- | --- | --- |\n")
	for _, r := range verify.Rules() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.ID, r.Severity, r.Title, r.Reason)
	}
	b.WriteString("\n")
	if *rewrite {
		require.NoError(t, os.WriteFile(referenceFile, []byte(head+rulesBegin+b.String()+rulesEnd+foot), 0o644))
		return
	}
	require.Equal(t, b.String(), have, "docs/flow-reference.md is stale: go test ./internal/flow/verify -run Reference -update")
}
