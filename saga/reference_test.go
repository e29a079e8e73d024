package saga_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("update", false, "rewrite docs/saga-reference.md from the schema")

const referenceFile = "../docs/saga-reference.md"

const referenceHead = `# Definitions of sagas, field by field

This page is generated from [saga/saga.schema.json](../saga/saga.schema.json) (JSON Schema, draft 2020-12), which
` + "`troupe saga schema`" + ` prints and ` + "`saga.Schema()`" + ` gives. To rewrite it: ` + "`go test ./saga -run Reference -update`" + `.

%s

An editor that supports JSON Schema completes and checks definitions, if you assign this schema to files ` + "`*.saga.json`" + `;
in VS Code:

    troupe saga schema > saga.schema.json

` + "```json" + `
{"json.schemas": [{"fileMatch": ["*.saga.json"], "url": "./saga.schema.json"}]}
` + "```" + `
`

// reference returns the page docs/saga-reference.md.
func reference(t testing.TB) string {
	t.Helper()
	root := schemaTree(t)
	var b strings.Builder
	fmt.Fprintf(&b, referenceHead, folded(root.Description))
	b.WriteString("\n## The definition\n\n")
	root.table(t, root, &b)
	for _, def := range root.Defs {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", def.Name, folded(def.Description))
		switch {
		case len(def.Properties) > 0:
			b.WriteString("\n")
			def.table(t, root, &b)
		case len(def.Enum) > 0:
			fmt.Fprintf(&b, "\nOne of: %s.\n", quoted(def.Enum))
		case def.Pattern != "":
			fmt.Fprintf(&b, "\nIt matches `%s`.\n", def.Pattern)
		}
	}
	return b.String()
}

// folded breaks prose into lines.
func folded(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > 118:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, "`"+w+"`")
	}
	return strings.Join(all, ", ")
}

func (n *node) table(t testing.TB, root *node, b *strings.Builder) {
	b.WriteString("| field | type | meaning |\n| --- | --- | --- |\n")
	for _, p := range n.Properties {
		says := p.Description
		if slices.Contains(n.Required, p.Name) {
			says = "**Required.** " + says
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", p.Name, p.kind(t, root), strings.ReplaceAll(says, "|", `\|`))
	}
}

// kind returns a node's type, with a link if the type has its own section.
func (n *node) kind(t testing.TB, root *node) string {
	name, is := n.resolve(t, root)
	switch {
	case name != "":
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	case len(is.Enum) > 0:
		return quoted(is.Enum)
	case is.Items != nil:
		return "list of " + is.Items.kind(t, root)
	case is.Kind == "object":
		return "[Variable](#variable) to [Type](#type)"
	}
	return fmt.Sprint(is.Kind)
}

func TestTheReferenceIsOfTheSchema(t *testing.T) {
	page := reference(t)
	if *rewrite {
		require.NoError(t, os.WriteFile(referenceFile, []byte(page), 0o644))
	}
	have, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, page, string(have), "docs/saga-reference.md is stale: go test ./saga -run Reference -update")
}
