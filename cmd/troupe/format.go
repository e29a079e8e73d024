package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// format is the value of --output: a pflag.Value. Every command that prints facts has it.
type format struct {
	is     string
	others []string // in addition to the three formats of all commands
}

const (
	inTable = "table" // for people: a table, or a more suitable layout
	inJSON  = "json"
	inYAML  = "yaml"

	inMermaid = "mermaid"
	inSARIF   = "sarif"
	inGo      = "go"
)

// declare gives a command --output, with its further formats.
func (f *format) declare(cmd *cobra.Command, others ...string) {
	f.is, f.others = inTable, others
	cmd.Flags().VarP(f, "output", "o", "output format: `"+strings.Join(f.known(), "|")+"`")
}

func (f *format) known() []string { return append([]string{inTable, inJSON, inYAML}, f.others...) }

// forPeople reports whether the output is for people.
func (f *format) forPeople() bool { return f.is == inTable }

// forPrograms reports whether facts are printed by encode.
func (f *format) forPrograms() bool { return f.is == inJSON || f.is == inYAML }

// String returns the flag's value.
func (f *format) String() string { return f.is }

// Type is not shown: the usage has its own word.
func (f *format) Type() string { return "format" }

// Set accepts a known format.
func (f *format) Set(text string) error {
	if !slices.Contains(f.known(), text) {
		return fmt.Errorf("want %s", strings.Join(f.known(), ", "))
	}
	f.is = text
	return nil
}

// encode prints a value: as JSON in one line, or as YAML with the same names in the same order.
func (f *format) encode(w io.Writer, value any) error {
	if f.is == inYAML {
		return writeYAML(w, value)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // the output is for a terminal or a program, never for an HTML page
	return enc.Encode(value)
}

// result prints the result of a command: the value for programs, or a text for people.
func (f *format) result(cmd *cobra.Command, value any, text string, args ...any) error {
	if f.forPrograms() {
		return f.encode(cmd.OutOrStdout(), value)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), text, args...)
	return err
}

// next prints one of many values: lines of JSON, or documents of YAML.
func (f *format) next(w io.Writer, value any) error {
	if f.is == inYAML {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	return f.encode(w, value)
}

var _ pflag.Value = (*format)(nil)
