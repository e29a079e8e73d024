package decisions

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/saga"
)

// Committed selects the isolation level read committed, whatever the role's default_transaction_isolation is. After a statement has waited
// for other transactions, it sees everything that they have committed.
var Committed = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// StartTries is the number of times that a start is tried. Only a conflict leads to another try.
const StartTries = 3

const insertDefinition = `
INSERT INTO troupe.saga_definitions (hash, saga, version, definition)
VALUES ($1, $2, $3, $4)
ON CONFLICT (hash) DO NOTHING`

// StoreDefinition stores a definition, unless its hash is stored already.
func StoreDefinition(ctx context.Context, pool *pgxpool.Pool, d *saga.Definition) error {
	_, err := pool.Exec(ctx, insertDefinition, d.Hash(), d.Spec().Saga, d.Spec().Version, string(d.JSON()))
	return err
}

// CheckNoOtherCoordinator returns an error if another coordinator than the one of hop and group has sagas of one of the types under way in
// this database. Two coordinators of one type would mix up their sagas: ids, locks and stashed events contain the name of the type, but not
// the coordinator.
func CheckNoOtherCoordinator(ctx context.Context, q Querier, types []string, hop, group string) error {
	const others = `
SELECT saga, hop, consumer_group
FROM troupe.sagas
WHERE saga = ANY ($1)
  AND status IN ('waiting', 'running', 'compensating', 'parked')
  AND (hop, consumer_group) <> ($2, $3)
LIMIT 1`
	var name, otherHop, otherGroup string
	err := q.QueryRow(ctx, others, types, hop, group).Scan(&name, &otherHop, &otherGroup)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for other coordinators: %w", err)
	}
	return fmt.Errorf("%w: the coordinator %s (group %s) has sagas %s under way in this database: give %s a database of its own, "+
		"or let those end first", ErrRefused, otherHop, otherGroup, name, hop)
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ErrNoDefinition is wrapped by the error about a definition that is not stored in the database.
var ErrNoDefinition = errors.New("not stored")

// ReadDefinition reads the stored definition of a hash, and parses it.
func ReadDefinition(ctx context.Context, q Querier, hash string) (*saga.Definition, error) {
	text, err := ReadText(ctx, q, hash)
	if err != nil {
		return nil, err
	}
	return saga.Parse([]byte(text))
}

// ReadText returns the text of the stored definition of a hash.
func ReadText(ctx context.Context, q Querier, hash string) (text string, err error) {
	err = q.QueryRow(ctx, "SELECT definition FROM troupe.saga_definitions WHERE hash = $1", hash).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("definition %s is %w", hash, ErrNoDefinition)
	}
	return text, err
}
