package flow_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("update", false, "write the fields in docs/flow-reference.md")

const (
	referenceFile = "../docs/flow-reference.md"
	fieldsBegin   = "<!-- fields: written by go test ./flow -run Reference -update -->\n"
	fieldsEnd     = "<!-- end of fields -->\n"
)

// fields returns the part of the page that is made from the schema.
func fields(t testing.TB) string {
	t.Helper()
	root := schemaTree(t)
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Fields\n\n%s\n\n", root.Description)
	root.table(t, root, &b)
	for _, def := range root.Defs {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", def.Name, def.Description)
		if len(def.Properties) > 0 {
			b.WriteString("\n")
			def.table(t, root, &b)
		} else {
			fmt.Fprintf(&b, "\nIt matches `%s`.\n", def.Pattern)
		}
	}
	return b.String() + "\n"
}

func (n *node) table(t testing.TB, root *node, b *strings.Builder) {
	b.WriteString("| field | type | meaning |\n| --- | --- | --- |\n")
	for _, p := range n.Properties {
		says := p.Description
		if slices.Contains(n.Required, p.Name) {
			says = "**Required.** " + says
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", p.Name, p.typ(t, root), strings.ReplaceAll(says, "|", `\|`))
	}
}

// typ returns a node's type, with a link if the type has its own section.
func (n *node) typ(t testing.TB, root *node) string {
	name, is := n.resolve(t, root)
	switch {
	case name != "":
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	case is.Items != nil:
		return "list of " + is.Items.typ(t, root)
	}
	return is.Kind
}

func TestTheReferencesFieldsAreTheSchemas(t *testing.T) {
	text, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	head, rest, begun := strings.Cut(string(text), fieldsBegin)
	have, foot, ended := strings.Cut(rest, fieldsEnd)
	require.True(t, begun && ended, "docs/flow-reference.md has lost the lines around its fields")
	want := fields(t)
	if *rewrite {
		require.NoError(t, os.WriteFile(referenceFile, []byte(head+fieldsBegin+want+fieldsEnd+foot), 0o644))
		return
	}
	require.Equal(t, want, have, "docs/flow-reference.md is stale: go test ./flow -run Reference -update")
	service, err := os.ReadFile("../internal/demo/payment/reactions.json")
	require.NoError(t, err)
	require.Contains(t, head, "```json\n"+string(service)+"```\n", "the service that the page shows")
}
