package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin"
)

// A listing prints a list.
type listing[T any] struct {
	name    string // of the list, in the output for programs
	ifEmpty string // for people
	head    []string
	row     func(T) []string
}

// print prints a whole list.
func (l listing[T]) print(cmd *cobra.Command, output format, all []T) error {
	if output.forPrograms() {
		return output.encode(cmd.OutOrStdout(), map[string]any{l.name: orEmpty(all)})
	}
	return l.table(cmd.OutOrStdout(), all)
}

// printPage prints a page of a list. next is the cursor of the next page; empty: there is none.
func (l listing[T]) printPage(cmd *cobra.Command, output format, all []T, next string) error {
	if output.forPrograms() {
		return output.encode(cmd.OutOrStdout(), map[string]any{l.name: orEmpty(all), "next": next})
	}
	err := l.table(cmd.OutOrStdout(), all)
	more(cmd.OutOrStdout(), next)
	return err
}

// table prints a list for people.
func (l listing[T]) table(w io.Writer, all []T) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, l.ifEmpty)
		return err
	}
	t := newTable(w, l.head...)
	for _, one := range all {
		t.row(l.row(one)...)
	}
	return t.print(w)
}

// printChanges prints the record of the changes of a schedule or a rebuild.
func printChanges(w io.Writer, changes []admin.Change) error {
	t := newTable(w, "AT", "ACTOR", "ACTION", "CHANGE", "REASON")
	for _, c := range changes {
		t.row(stamp(c.At), oneLine(c.Actor, 40), c.Action, oneLine(c.Change, 120), oneLine(c.Reason, 120))
	}
	return t.print(w)
}
