package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/jsontext"
)

// maxEdit is a little above the library's limit, so that the library reports a payload that is too large.
const maxEdit = 8<<20 + 1

func newDLQEdit() *cobra.Command {
	var f deskFlags
	var payload string
	cmd := &cobra.Command{
		Use:   "edit <id>",
		Short: "Change the payload that a redrive of a dead letter will send",
		Long: `edit takes JSON, from --payload or, on a terminal, from $EDITOR. An Avro message is written with the
schema that it had; an invalid value is refused with its path. The original message is kept. edit sends
nothing: run redrive afterwards.

A redrive sends the edited message to its handler with another idempotency key, since a service that the
handler calls may have answered the first one and would repeat that answer. See redrive --same-key.`,
		Example: `  troupe dlq edit 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f --payload fixed.json --reason 'ticket 4711: wrong currency'
  troupe dlq show $ID --output json | jq '.payload.json | .currency = "EUR"' |
    troupe dlq edit $ID --payload - --reason 'ticket 4711: wrong currency'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := letterID(args[0])
			if err != nil {
				return err
			}
			by, err := f.by(true)
			if err != nil {
				return err
			}
			if payload == "" && !term.IsTerminal(int(os.Stdin.Fd())) {
				return errors.New("--payload is not set: want a file with JSON, or - for standard input; only on a terminal an editor opens")
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				text, err := readPayload(cmd, payload, desk, id)
				if err != nil {
					return failed(err)
				}
				if f.dryRun {
					if !json.Valid(text) {
						return failed(errors.New("the payload is no JSON"))
					}
					return f.wouldDo(cmd, fmt.Sprintf("give %s a payload of %s", id, counted(len(text), "byte", "bytes")))
				}
				if err := desk.Edit(cmd.Context(), id, text, by); err != nil {
					return failed(err)
				}
				if f.output.forPrograms() {
					return f.output.encode(cmd.OutOrStdout(), map[string]any{"edited": id})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Edited. It is not sent yet: troupe dlq redrive %s\n"+
					"A service outside gets it with another idempotency key, as another request; if the first one took effect there: --same-key\n", id)
				return err
			})
		},
	}
	f.declare(cmd)
	f.declareRegistry(cmd.Flags())
	cmd.Flags().StringVar(&payload, "payload", "", "`file` with the new payload as JSON; - for standard input (default, on a terminal: $EDITOR)")
	f.declareAction(cmd.Flags(), "the payload is changed; required")
	return cmd
}

func readPayload(cmd *cobra.Command, from string, desk *repair.Desk, id uuid.UUID) ([]byte, error) {
	switch from {
	case "":
		return editPayload(cmd.Context(), desk, id)
	case "-":
		return io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxEdit))
	}
	return readUpTo(from, maxEdit)
}

// editPayload opens an editor with the payload that a redrive would send now.
func editPayload(ctx context.Context, desk *repair.Desk, id uuid.UUID) ([]byte, error) {
	editor := strings.Fields(os.Getenv("EDITOR"))
	if len(editor) == 0 {
		return nil, errors.New("neither --payload nor EDITOR is set: set one")
	}
	l, err := desk.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	p := l.Payload
	if l.Edit != nil {
		p = *l.Edit
	}
	var before []byte
	if p.JSON != nil {
		before = jsontext.Indent(p.JSON, "")
	}
	file, err := os.CreateTemp("", "troupe-edit-*.json") // readable by this user only
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(before)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	run := exec.CommandContext(ctx, editor[0], append(editor[1:], file.Name())...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("EDITOR %s: %w: nothing was changed", editor[0], err)
	}
	after, err := os.ReadFile(file.Name())
	if err == nil && bytes.Equal(bytes.TrimSpace(after), bytes.TrimSpace(before)) {
		err = errors.New("you left it as it was: nothing was changed")
	}
	return after, err
}
