package personal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/tink-crypto/tink-go/v2/daead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// A Table is the store of keys in troupe.subject_keys. All services of a flow that encrypt or decrypt use the table of one database. A key
// is stored encrypted with a key-encryption key, so that neither the table nor a backup of it is enough to read data.
type Table struct {
	pool *pgxpool.Pool
	kek  tink.AEAD
}

var _ Keys = (*Table)(nil)

// connections is the number of connections of a Table. It has its own: a handler that waits for a key holds one of its pool already.
const connections = 2

// NewTable returns a Table in the database of a pool. It opens up to two connections of its own. kek encrypts the keys: see KeyFile, and
// the AEADs that Tink has for key management services. Call Close at the end.
func NewTable(ctx context.Context, pool *pgxpool.Pool, kek tink.AEAD) (*Table, error) {
	if pool == nil || kek == nil {
		return nil, errors.New("personal: NewTable wants a pool and a key-encryption key")
	}
	cfg := pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = connections, 0, 0
	own, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("personal: %w", err)
	}
	return &Table{own, kek}, nil
}

// Close closes the connections.
func (t *Table) Close() { t.pool.Close() }

func digest(subject string) []byte {
	sum := sha256.Sum256([]byte(subject))
	return sum[:]
}

// Find returns a subject's key.
func (t *Table) Find(ctx context.Context, subject string) (tink.DeterministicAEAD, error) {
	const find = "SELECT wrapped_key FROM troupe.subject_keys WHERE subject = $1"
	var wrapped []byte
	err := t.pool.QueryRow(ctx, find, digest(subject)).Scan(&wrapped)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrNoKey
	case err != nil:
		return nil, fmt.Errorf("read troupe.subject_keys: %w", err)
	case wrapped == nil:
		return nil, ErrForgotten
	}
	handle, err := t.unwrap(wrapped, digest(subject))
	if err != nil {
		return nil, err
	}
	return daead.New(handle)
}

// durable begins a statement whose changes are on the server's disk when it returns, whatever the role's synchronous_commit is. A crash of the
// server must not lose a new key: messages that are encrypted with it may already be in Kafka or in another database. Nor must it lose the
// change to a new key-encryption key: the former one may have been removed.
const durable = `
WITH durable AS (
  SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                          ELSE current_setting('synchronous_commit') END, true)
)
`

const insertKey = durable + `INSERT INTO troupe.subject_keys (subject, wrapped_key)
SELECT $1, $2
FROM durable
ON CONFLICT DO NOTHING`

// Make returns a subject's key, and stores a new one if there is none.
func (t *Table) Make(ctx context.Context, subject string) (tink.DeterministicAEAD, error) {
	key, err := t.Find(ctx, subject)
	if !errors.Is(err, ErrNoKey) {
		return key, err
	}
	handle, err := keyset.NewHandle(daead.AESSIVKeyTemplate())
	if err != nil {
		return nil, err
	}
	wrapped, err := t.wrap(handle, digest(subject))
	if err != nil {
		return nil, err
	}
	if _, err := t.pool.Exec(ctx, insertKey, digest(subject), wrapped); err != nil {
		return nil, fmt.Errorf("write troupe.subject_keys: %w", err)
	}
	return t.Find(ctx, subject) // another process may have made one
}

// wrap encrypts a key. It is bound to its row by the associated data.
func (t *Table) wrap(key *keyset.Handle, row []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := key.WriteWithAssociatedData(keyset.NewBinaryWriter(&b), t.kek, row); err != nil {
		return nil, fmt.Errorf("encrypt the subject's key: %w", err)
	}
	return b.Bytes(), nil
}

func (t *Table) unwrap(wrapped, row []byte) (*keyset.Handle, error) {
	key, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(wrapped)), t.kek, row)
	if err != nil {
		return nil, fmt.Errorf("%w: is it encrypted with another key-encryption key? %w", ErrUnreadableKey, err)
	}
	return key, nil
}

// batch is the number of keys that Rewrap reads at a time.
const batch = 500

// Rewrap encrypts all keys with the current key-encryption key, and returns their number. After that the former ones are needed for
// backups only. Its role needs UPDATE (wrapped_key) on troupe.subject_keys. You can repeat it after an error, and run it while services run.
func (t *Table) Rewrap(ctx context.Context) (n int, err error) {
	type row struct{ Subject, Wrapped []byte }
	for last := []byte{}; ; {
		rows, err := t.pool.Query(ctx, `
SELECT subject, wrapped_key
FROM troupe.subject_keys
WHERE wrapped_key IS NOT NULL AND subject > $1
ORDER BY subject
LIMIT $2`, last, batch)
		if err != nil {
			return n, fmt.Errorf("rewrap: %w", err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil {
			return n, fmt.Errorf("rewrap: %w", err)
		}
		for _, r := range all {
			key, err := t.unwrap(r.Wrapped, r.Subject)
			if err != nil {
				return n, fmt.Errorf("rewrap: %w", err)
			}
			again, err := t.wrap(key, r.Subject)
			if err != nil {
				return n, fmt.Errorf("rewrap: %w", err)
			}
			// A key that was forgotten meanwhile stays so.
			const update = durable + "UPDATE troupe.subject_keys SET wrapped_key = $3 FROM durable WHERE subject = $1 AND wrapped_key = $2"
			done, err := t.pool.Exec(ctx, update, r.Subject, r.Wrapped, again)
			if err != nil {
				return n, fmt.Errorf("rewrap: %w", err)
			}
			n += int(done.RowsAffected())
		}
		if len(all) < batch {
			return n, nil
		}
		last = all[len(all)-1].Subject
	}
}
