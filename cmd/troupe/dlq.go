package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/topics"
)

func newDLQ() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "dlq",
		Short: "See and repair dead letters: messages that are not tried again automatically",
		Long: `dlq works on one service's database (--database-url or DATABASE_URL). list groups dead letters by their
cause; show prints one with its payload as JSON; edit changes the payload that a redrive will send;
redrive sends messages to their topic again; discard gives dead letters up. Every action is recorded
with the operator's name and reason.`,
		Example: `  troupe dlq list
  troupe dlq list --cause 5f0c1d2e3a4b
  troupe dlq redrive --cause 5f0c1d2e3a4b --rate 20`,
	}, newDLQList(), newDLQShow(), newDLQEdit(), newDLQRedrive(), newDLQDiscard())
}

// filterFlags holds the flags that select dead letters.
type filterFlags struct {
	filter        repair.Filter
	hop, key      string
	since, before time.Time
	all           bool
}

func (f *filterFlags) declare(flags *pflag.FlagSet) {
	flags.StringVar(&f.filter.Cause, "cause", "", "only of this `cause`, as list prints it")
	flags.StringVar(&f.hop, "hop", "", "only messages of this `flow.hop`: its commands and events")
	flags.StringSliceVar(&f.filter.Topics, "topic", nil, "only messages of this `topic`, repeatable")
	flags.StringVar(&f.filter.Group, "group", "", "only of this consumer `group`")
	flags.StringVar(&f.filter.Class, "class", "", "only of this class: `"+strings.Join(repair.Classes(), "|")+"`")
	flags.StringVar(&f.filter.Handler, "handler", "", "only of this `handler`: group/type")
	flags.StringVar(&f.filter.Type, "type", "", "only messages of this `type`")
	flags.StringVar(&f.key, "key", "", "only messages with this `key`; 0x… for one that is no text")
	momentVar(flags, &f.since, "since", "only messages that became dead letters at this `time` or later: 2026-01-31T12:00:00Z, or 2h for two hours ago")
	momentVar(flags, &f.before, "before", "only messages that became dead letters before this `time`")
}

// chosen reads the flags and the ids.
func (f *filterFlags) chosen(cmd *cobra.Command, ids []string) (repair.Filter, error) {
	filter := f.filter
	filter.Since, filter.Before = f.since, f.before
	if cmd.Flags().Changed("key") {
		filter.Key = repair.ParseKey(f.key)
	}
	if f.hop != "" {
		hop, err := topics.ParseHop(f.hop)
		if err != nil {
			return filter, fmt.Errorf("--hop: %w", err)
		}
		filter.Topics = append(filter.Topics, hop.Commands(), hop.Events())
	}
	for _, text := range ids {
		id, err := letterID(text)
		if err != nil {
			return filter, err
		}
		filter.IDs = append(filter.IDs, id)
	}
	return filter, filter.Validate()
}

// forAction requires a selection: an action on all dead letters needs --all.
func (f *filterFlags) forAction(cmd *cobra.Command, ids []string) (repair.Filter, error) {
	filter, err := f.chosen(cmd, ids)
	switch {
	case err != nil:
		return filter, err
	case filter.IsZero() && !f.all:
		return filter, errors.New("nothing selected: give ids, or --cause or another filter, or --all")
	case !filter.IsZero() && f.all:
		return filter, errors.New("--all with ids or a filter: use one or the other")
	}
	return filter, nil
}

func letterID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, fmt.Errorf("id %q: want a dead letter's id, a UUID as troupe dlq list --letters prints it", text)
	}
	return id, nil
}
