package sagadesk

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/pg"
)

// eachPage is the number of sagas that each reads at a time, if their states are not large.
const eachPage = 100

// each calls do for each saga that a condition on troupe.sagas selects, in the order of their ids, without a lock. It reads pages, so
// a saga that changes meanwhile is read before or after the change. err is the reason why a saga's state cannot be read; its Row is
// filled in then, too. each stops at the first error of do, and returns that error.
func (d *Desk) each(ctx context.Context, which string, args pg.Args, do func(g *Detail, err error) error) error {
	read := "SELECT " + detailColumns + "\nFROM troupe.sagas\nWHERE " + which + "\n  AND id > @after\nORDER BY id\nLIMIT " + strconv.Itoa(eachPage)
	for args["after"] = ""; ; {
		rows, err := d.cfg.Pool.Query(ctx, read, args)
		if err != nil {
			return fmt.Errorf("read sagas: %w", explain(err))
		}
		var states [][]byte
		page, _, err := admin.Collect(rows, eachPage, func(row pgx.CollectableRow) (*Detail, error) {
			g, state := new(Detail), []byte(nil)
			err := row.Scan(g.targets(&state)...)
			states = append(states, state)
			return g, err
		})
		if err != nil {
			return fmt.Errorf("read sagas: %w", explain(err))
		}
		if len(page) == 0 {
			return nil
		}
		for i, g := range page {
			err := d.complete(ctx, g, states[i])
			if err != nil && (ctx.Err() != nil || pg.Classify(err) != pg.Unknown) { // not about the saga
				return fmt.Errorf("read saga %s: %w", g.ID, explain(err))
			}
			if err := do(g, err); err != nil {
				return err
			}
			args["after"] = g.ID
		}
	}
}

// maxRead limits the bytes of a state, or of an entry of a log: a larger one is not read. A coordinator writes a few megabytes; its role
// could write 255 MiB.
const maxRead = 32 << 20

var (
	detailColumns = fmt.Sprintf("%s, CASE WHEN octet_length(state::text) <= %d THEN state END, content_type, clock_timestamp()", rowColumns, maxRead)
	errTooLarge   = fmt.Errorf("it has more than %d MiB, and is not read", maxRead>>20)
)

// targets returns the scan targets of detailColumns.
func (g *Detail) targets(state *[]byte) []any {
	return append(g.Row.fields(), state, &g.ContentType, &g.Now)
}

// complete sets the definition and the state of a row that was read.
func (d *Desk) complete(ctx context.Context, g *Detail, state []byte) (err error) {
	if g.Definition, err = d.definitions.Of(ctx, g.Row.Definition); err != nil {
		return err
	}
	if state == nil { // the column has no null
		return fmt.Errorf("the state: %w", errTooLarge)
	}
	g.State, err = g.Definition.ReadState(state)
	return err
}
