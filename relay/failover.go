package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/wal"
)

// The values of Config.Failover.
const (
	failoverAuto = "auto"
	failoverOn   = "on"
	failoverOff  = "off"
)

// failoverSince is the first server_version_num whose slots have the property failover.
const failoverSince = 170000

// wantsFailover reports whether the slot should have the property failover, with which the server's standbys copy it.
func (r *Relay) wantsFailover(ctx context.Context, db querier) (bool, error) {
	if r.cfg.Failover == failoverOff {
		return false, nil
	}
	var version int
	if err := db.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return false, fmt.Errorf("read the server's version: %w", err)
	}
	if version < failoverSince && r.cfg.Failover == failoverOn {
		return false, errors.New("failover on: slots are copied to standbys from Postgres 17 on: set failover to auto or off")
	}
	return version >= failoverSince, nil
}

// createSlot creates the slot. A server that only resembles Postgres may refuse a slot with failover. Under failoverAuto createSlot then
// creates the slot without failover.
func (r *Relay) createSlot(ctx context.Context, db querier, conn *wal.Conn) (wal.LSN, error) {
	failover, err := r.wantsFailover(ctx, db)
	if err != nil {
		return 0, err
	}
	from, err := conn.CreateSlot(ctx, r.cfg.Slot, failover)
	if failover && r.cfg.Failover == failoverAuto && refusesFailover(err) {
		r.cfg.Log.Warn().Err(err).Str("slot", r.cfg.Slot).Msg("the server creates no slot that standbys copy: it is created without failover")
		return conn.CreateSlot(ctx, r.cfg.Slot, false)
	}
	return from, err
}

// setSlotFailover changes the slot's property failover if it is not the configured one. The server refuses the change while a client
// streams the slot. Under failoverAuto a refusal is only logged, and the slot is used as it is.
func (r *Relay) setSlotFailover(ctx context.Context, db querier, conn *wal.Conn, slot slotState) error {
	failover, err := r.wantsFailover(ctx, db)
	if err != nil || slot.failover == nil || *slot.failover == failover {
		return err
	}
	err = conn.AlterSlot(ctx, r.cfg.Slot, failover)
	if errors.As(err, new(*pgconn.PgError)) && r.cfg.Failover == failoverAuto {
		r.cfg.Log.Warn().Err(err).Str("slot", r.cfg.Slot).Msg("the server refused to change the failover property of the slot: the slot is used as it is")
		return nil
	}
	if err == nil {
		r.cfg.Log.Info().Str("slot", r.cfg.Slot).Bool("failover", failover).Msg("slot altered")
	}
	return err
}

// refusesFailover reports whether err means that the server does not know or support the property failover.
func refusesFailover(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && (refusal.Code == "42601" || refusal.Code == "0A000" || refusal.Code == "55000")
}
