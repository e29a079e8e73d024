package main

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

// A page is a page to request.
type page struct{ name, address string }

// pagesToRequest returns all pages, with the addresses that users reach by links.
func (s *stage) pagesToRequest(ctx context.Context) (all []page, err error) {
	add := func(name, path string, values ...string) {
		q := make(url.Values)
		for i := 0; i+1 < len(values); i += 2 {
			q.Add(values[i], values[i+1])
		}
		if len(q) > 0 {
			path += "?" + q.Encode()
		}
		all = append(all, page{name, path})
	}
	one := func(database, sql string, args ...any) string {
		var text string
		if err == nil {
			if err = s.pools[database].QueryRow(ctx, sql, args...).Scan(&text); err != nil {
				err = fmt.Errorf("%s: %w", sql, err)
			}
		}
		return text
	}
	parked := one("order", "SELECT id FROM troupe.sagas WHERE status = 'parked' ORDER BY started_at DESC LIMIT 1")
	completed := one("order", "SELECT id FROM troupe.sagas WHERE status = 'completed' ORDER BY started_at DESC LIMIT 1")
	hash := one("order", "SELECT hash FROM troupe.saga_definitions WHERE version = 1")
	next := one("order", "SELECT hash FROM troupe.saga_definitions WHERE version = 2")
	letter := one("payment", "SELECT id FROM troupe.dead_letters WHERE status = 'open' ORDER BY last_failed_at LIMIT 1")
	message := one("payment", "SELECT message_id FROM troupe.dead_letters WHERE status = 'open' ORDER BY last_failed_at LIMIT 1")
	cause := one("payment", "SELECT cause FROM troupe.dead_letters WHERE status = 'open' ORDER BY last_failed_at LIMIT 1")
	cursor := one("payment", `SELECT to_char(last_failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || ',' || id
		FROM troupe.dead_letters WHERE status = 'open' ORDER BY last_failed_at OFFSET $1 LIMIT 1`, s.letters/2)
	middle := time.Now().Add(-15*24*time.Hour).UTC().Format(time.RFC3339Nano) + ",order/o-1"

	add("overview", "/")
	for _, window := range []string{"15m", "24h", "7d"} {
		add("overview, "+window, "/", "window", window)
	}
	add("sagas", "/sagas")
	add("sagas, in the middle", "/sagas", "db", "order", "after", middle)
	add("sagas, parked, oldest first", "/sagas", "db", "order", "status", "parked", "oldest", "1")
	add("sagas, of a type, completed", "/sagas", "db", "order", "saga", "order", "status", "completed")
	add("sagas, of a key", "/sagas", "db", "order", "key", "o-777")
	add("sagas, at a step", "/sagas", "db", "order", "step", "shipping")
	add("sagas, at a step that none is at", "/sagas", "db", "order", "step", "audit")
	add("sagas, not moved for a day", "/sagas", "db", "order", "still", "24h", "oldest", "1")
	add("sagas, on a definition", "/sagas", "db", "order", "definition", hash)
	add("sagas, on a definition that none is on", "/sagas", "db", "order", "definition", "none")
	add("saga, parked", "/saga", "db", "order", "id", parked)
	add("saga, completed", "/saga", "db", "order", "id", completed)
	add("saga, before an action", "/saga/act", "db", "order", "id", parked, "do", "compensate")
	add("sagas, of a variable", "/sagas", "db", "order", "variable", "payment_id", "value", "p-o-1000")
	add("flows", "/flows")
	add("flows, in the middle", "/flows", "after", time.Now().Add(-72*time.Hour).UTC().Format(time.RFC3339Nano)+",ffffffff-ffff-ffff-ffff-ffffffffffff")
	add("flows, missing something", "/flows", "found", "missing")
	add("flows, of a key", "/flows", "key", "o-77")
	add("flows, deviant", "/flows", "status", "deviant")
	add("flows, parked, which none is", "/flows", "status", "parked")
	add("flow", "/flow", "id", "o-77")
	add("definitions", "/definitions")
	add("definition", "/definition", "db", "order", "hash", hash)
	add("definition, before a move of its sagas", "/definition/move", "db", "order", "from", hash, "to", next)
	add("definition, before a start", "/definition/start", "db", "order", "hash", hash, "key", "o-new",
		"input", `{"customer_id": "c-7", "amount_cents": 1999, "title": 7, "quantity": 1}`)
	add("dead letters", "/dead-letters")
	add("dead letters, of a class", "/dead-letters", "class", "timeout")
	add("dead letters, of a key", "/dead-letters", "key", "o-77")
	add("dead letters, one by one", "/dead-letters/list", "db", "payment")
	add("dead letters, one by one, in the middle", "/dead-letters/list", "db", "payment", "after", cursor)
	add("dead letters, of a cause", "/dead-letters/list", "db", "payment", "cause", cause)
	add("dead letter", "/dead-letter", "db", "payment", "id", letter)
	add("dead letters, before a redrive", "/dead-letters/act", "db", "payment", "do", "redrive", "cause", cause)
	add("dead letters, before a redrive of all", "/dead-letters/act", "db", "payment", "do", "redrive", "all", "1")
	add("held keys", "/held")
	add("held key", "/held/key", "db", "payment", "place", "shop.payment.commands/1/1")
	add("messages, of a key", "/messages", "q", "o-77")
	add("messages, of a message", "/messages", "q", message)
	add("relay", "/relay")
	return all, err
}
