package verify_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
)

var update = flag.Bool("update", false, "write the generated part of docs/verifier.md")

const (
	document  = "../../../docs/verifier.md"
	generated = "<!-- Below is written by go test ./internal/saga/verify -run Document -update -->\n"
	longest   = 45 // lines of an example that is shown
)

func TestTheDocumentSaysWhatTheRulesSay(t *testing.T) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	head, rest, marked := strings.Cut(string(text), generated)
	require.True(t, marked, "docs/verifier.md has lost the line %s", generated)
	want := rulesText(t)
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(head+generated+want), 0o644))
		return
	}
	require.Equal(t, want, rest, "docs/verifier.md is stale: go test ./internal/saga/verify -run Document -update")
}

func rulesText(t *testing.T) string {
	var b strings.Builder
	b.WriteString("\n| rule | severity | what is wrong |\n|---|---|---|\n")
	for _, r := range verify.Rules() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", r.ID, r.ID, r.Severity, r.Title)
	}
	for _, r := range verify.Rules() {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", r.ID, r.Reason)
		bad := files(r.ID, "bad")
		for _, file := range bad {
			example := string(read(t, file))
			if strings.Count(example, "\n") > longest {
				fmt.Fprintf(&b, "\n[%s](../internal/saga/verify/testdata/%s) breaks it.\n", file, file)
				continue
			}
			fmt.Fprintf(&b, "\n```json\n%s```\n", example)
		}
		b.WriteString("\n```text\n")
		for _, f := range find(t, bad, r.ID+".hops.json") {
			fmt.Fprintf(&b, "%s:%d: %s\n", bad[len(bad)-1], f.Line, f)
		}
		fmt.Fprintf(&b, "```\n\n[Made right](../internal/saga/verify/testdata/%s).\n", files(r.ID, "good")[0])
	}
	return b.String()
}
