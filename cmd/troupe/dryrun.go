package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

// wouldDo prints the result of a dry run.
func (f *deskFlags) wouldDo(cmd *cobra.Command, what string) error {
	return f.output.result(cmd, map[string]any{"done": false, "would": what}, "Would %s.\nNothing was done.\n", what)
}

// wouldRetry prints the held keys that would be due.
func (f *deskFlags) wouldRetry(cmd *cobra.Command, desk *repair.Desk, filter repair.HeldFilter) error {
	keys, next, err := desk.Held(cmd.Context(), filter, repair.Page{Limit: 10_000})
	if err != nil {
		return failed(err)
	}
	if len(keys) == 0 {
		return failed(errors.New("no key matches (troupe held list)"))
	}
	what := "make " + counted(len(keys), "key", "keys") + " due now"
	if next != "" {
		what = fmt.Sprintf("make more than %d keys due now", len(keys))
	}
	return f.wouldDo(cmd, what)
}

// wouldDeadLetter prints the message that would become a dead letter, and the messages that would continue behind it.
func (f *deskFlags) wouldDeadLetter(cmd *cobra.Command, desk *repair.Desk, place repair.Place, group string) error {
	keys, _, err := desk.Held(cmd.Context(), repair.HeldFilter{Places: []repair.Place{place}, Group: group}, repair.Page{Limit: 10})
	switch {
	case err != nil:
		return failed(err)
	case len(keys) == 0:
		return failed(fmt.Errorf("%s is not held (troupe held list)", place))
	case len(keys) > 1:
		return fmt.Errorf("%s is held by %d groups: select one with --group", place, len(keys))
	}
	k := keys[0]
	return f.wouldDo(cmd, fmt.Sprintf("make a dead letter of %s, key %s, after %s; %s behind it would go on",
		place, keyText(k.Key), counted(k.Attempts, "attempt", "attempts"), counted(k.Behind, "message", "messages")))
}
