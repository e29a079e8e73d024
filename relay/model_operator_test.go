//go:build unix

package relay_test

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/relay"
)

// badRow is the condition of rows o of an outbox that can never be published, and badFailure of failures t of a mapped table.
const (
	badRow     = "(o.topic <> $1 OR length(o.payload) > 20000)"
	badEvent   = "length(o.payload) > 20000"
	badFailure = "length(t.row::text) > 20000"
)

func (h *history) desk() desk.Desk {
	d := desk.Desk{DB: h.pool}
	if isMapped(h.source) {
		d.Table.Name = h.table()
	}
	return d
}

// parkedBadRow returns the id of the first parked row that can never be published.
func (h *history) parkedBadRow() (id uuid.UUID, found bool) {
	query, args := `SELECT o.id FROM troupe.outbox o JOIN troupe.outbox_failures t USING (position)
		WHERE t.status = 'parked' AND `+badRow+` ORDER BY position LIMIT 1`, []any{h.topic}
	if isMapped(h.source) {
		query, args = `SELECT t.id FROM troupe.mapped_failures t WHERE t.status = 'parked' AND `+badFailure+` ORDER BY position LIMIT 1`, nil
	}
	err := h.pool.QueryRow(context.Background(), query, args...).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, false
	}
	require.NoError(h.rt, err)
	return id, true
}

// repair retries or discards a parked row that can never be published. It returns false if there is none.
func (h *history) repair(act func(context.Context, desk.RowID, admin.Actor) (desk.Repaired, error)) (found bool) {
	id, found := h.parkedBadRow()
	if !found {
		return false
	}
	_, err := act(context.Background(), desk.RowID{ID: id}, admin.Actor{Name: "ann", Reason: "model"})
	if !errors.Is(err, desk.ErrNotParked) { // another source may have removed it meanwhile
		require.NoError(h.rt, err)
	}
	return true
}

// setPause pauses the outbox, or resumes it.
func (h *history) setPause(act func(context.Context, admin.Actor) error) {
	err := act(context.Background(), admin.Actor{Name: "ann", Reason: "model"})
	// The relay of a mapped table may not have registered it yet, or a database that was set back does not know it.
	if !errors.Is(err, desk.ErrPaused) && !errors.Is(err, desk.ErrNotPaused) && !errors.Is(err, desk.ErrNoRelay) {
		require.NoError(h.rt, err)
	}
}

// replay publishes again the rows that the database shows as published.
func (h *history) replay() {
	h.healed = true
	_, err := relay.Replay{Rate: 10_000}.Run(context.Background(), relay.Config{Pool: h.pool, Brokers: h.brokers, Service: "shop"}, nil)
	if !errors.Is(err, relay.ErrNothingPublished) {
		require.NoError(h.rt, err)
	}
}

// giveUpBadRows waits until the table of failures shows each row that can never be published, and removes these rows as an
// operator would.
func (h *history) giveUpBadRows() {
	if h.bad == 0 {
		return
	}
	h.await("rows that cannot be published to be shown", func() (bool, error) {
		hidden := h.hiddenBadRows()
		h.removeBadRows()
		return hidden == 0, nil
	})
}

func (h *history) hiddenBadRows() int {
	if isMapped(h.source) {
		return h.count(`SELECT count(*) FROM public.events o WHERE ` + badEvent + `
			AND NOT EXISTS (SELECT FROM troupe.mapped_failures t WHERE t.id = o.id)
			AND NOT EXISTS (SELECT FROM troupe.outbox_repairs r WHERE r.action = 'discard' AND r.row_id = o.id)`)
	}
	return h.count(`SELECT count(*) FROM troupe.outbox o WHERE `+badRow+`
		AND NOT EXISTS (SELECT FROM troupe.outbox_failures t WHERE t.position = o.position)`, h.topic)
}

// removeBadRows discards the parked rows of a mapped table and deletes them there, and deletes the rows of troupe.outbox with their failures.
func (h *history) removeBadRows() {
	if isMapped(h.source) {
		for h.repair(h.desk().Discard) {
		}
		h.exec(`DELETE FROM public.events o WHERE ` + badEvent + `
			AND EXISTS (SELECT FROM troupe.outbox_repairs r WHERE r.action = 'discard' AND r.row_id = o.id)`)
		return
	}
	h.exec(`WITH bad AS (DELETE FROM troupe.outbox o USING troupe.outbox_failures t
		WHERE o.position = t.position AND `+badRow+` RETURNING o.position)
		DELETE FROM troupe.outbox_failures t USING bad WHERE t.position = bad.position`, h.topic)
}
