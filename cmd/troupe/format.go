package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// format is how facts are printed: a pflag.Value.
type format string

const (
	inTable format = "table"
	inJSON  format = "json"
)

func (f *format) declare(flags *pflag.FlagSet) {
	*f = inTable
	flags.Var(f, "output", "how facts are printed: `table|json`")
}

// String is the flag's value.
func (f *format) String() string { return string(*f) }

// Type is not shown: the usage has its own word.
func (f *format) Type() string { return "format" }

// Set takes one of the two.
func (f *format) Set(text string) error {
	if format(text) != inTable && format(text) != inJSON {
		return fmt.Errorf("want %s or %s", inTable, inJSON)
	}
	*f = format(text)
	return nil
}
