package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestYAMLHasWhatJSONHas(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, writeYAML(&b, map[string]any{
		"a_position": json.Number("9007199254740993"), "b_rate": 0.5, "c_none": nil, "d_list": []string{"1", "true", "null", "~", "a: b", "- x", ""},
		"e_empty": []int{}, "f_object": map[string]any{}, "g_lines": "one\ntwo\n", "h_hostile": "\x1b[2J\u0085\x7f", "i_ok": true,
		"j_nested": []any{map[string]any{"x": []int{1}}}, "k_date": "2026-01-31", "l_octal": "0123",
	}))
	require.Equal(t, `a_position: 9007199254740993
b_rate: 0.5
c_none: null
d_list:
  - "1"
  - "true"
  - "null"
  - "~"
  - 'a: b'
  - '- x'
  - ""
e_empty: []
f_object: {}
g_lines: |
  one
  two
h_hostile: "\e[2J\N\x7F"
i_ok: true
j_nested:
  - x:
      - 1
k_date: "2026-01-31"
l_octal: "0123"
`, b.String())
	var back map[string]any
	require.NoError(t, yaml.Unmarshal(b.Bytes(), &back))
	require.Equal(t, []any{"1", "true", "null", "~", "a: b", "- x", ""}, back["d_list"])
	require.Equal(t, "\x1b[2J\u0085\x7f", back["h_hostile"])
}

func TestManyValuesAreDocumentsOfYAML(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	f := format{is: inYAML}
	require.NoError(t, f.next(&b, 1))
	require.NoError(t, f.next(&b, 2))
	require.Equal(t, "---\n1\n---\n2\n", b.String())
}

func TestATableFitsItsTerminal(t *testing.T) {
	t.Parallel()
	printed := func(width int) string {
		tab := &table{width: width, head: []string{"ID", "STATUS", "ERROR"}}
		tab.row("019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f", "open", strings.Repeat("because ", 10)+"·")
		tab.row("019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e60", "parked", "")
		var b bytes.Buffer
		require.NoError(t, tab.print(&b))
		return b.String()
	}
	pipe := printed(0)
	require.Contains(t, pipe, "because ·\n", "in a pipe nothing is cut")
	require.Equal(t, pipe, printed(500))
	for _, width := range []int{72, 80, 100} {
		text := printed(width)
		require.Equal(t, 3, strings.Count(text, "\n"), text)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, text)
		}
		require.Contains(t, text, "…\n")
		require.Contains(t, text, "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f  open    because")
	}
	require.Equal(t, `id      019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f
status  open
error   `+strings.Repeat("because ", 10)+`·

id      019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e60
status  parked
`, printed(60), "an id is never cut")
}

func TestATableThatGoesOnHasOneHead(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	tab := newTable(&b, "A", "B")
	tab.row("1", "2")
	require.NoError(t, tab.print(&b))
	tab.row("3", "4")
	require.NoError(t, tab.print(&b))
	require.Equal(t, "A  B\n1  2\n3  4\n", b.String())
}

func TestAFileIsNoTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	require.Zero(t, terminalWidth(file))
	require.False(t, colours(file))
}

// Shells ask the program for completions.
func TestCompletionKnowsCommandsFlagsAndValues(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][]string{
		"doc":                        {"doctor"},
		"saga re":                    {"replay", "resolve", "resume", "retry"},
		"dlq list --output ":         {"table", "json", "yaml"},
		"saga show x -o ":            {"table", "json", "yaml"},
		"doctor --as ":               {"relay", "participant", "saga-operator"},
		"completion ":                {"bash", "zsh", "fish"},
		"held list --cl":             {"--class"},
		"demo --style ":              {"orchestration", "choreography"},
		"saga list --status ":        {"parked", "running"},
		"saga resolve x --happened ": {"yes", "no"},
		"dlq list --class ":          {"poison", "timeout"},
		"schema check --level ":      {"FULL_TRANSITIVE", "NONE"},
		"flow graph --output ":       {"mermaid", "svg"},
		"dlq list --status ":         {"open", "discarded"},
	} {
		o := finish(t, command(t, nil, append([]string{"__complete"}, strings.Split(args, " ")...)...))
		require.Equal(t, 0, o.status, o.stderr)
		for _, word := range want {
			require.Regexp(t, `(?m)^`+word+`(\t|$)`, o.stdout, args)
		}
	}
	for shell, has := range map[string]string{"bash": "complete -o default", "zsh": "#compdef troupe", "fish": "complete -c troupe"} {
		o := finish(t, command(t, nil, "completion", shell))
		require.Equal(t, 0, o.status, o.stderr)
		require.Contains(t, o.stdout, has)
	}
	require.Equal(t, 2, finish(t, command(t, nil, "completion", "csh")).status)
}
