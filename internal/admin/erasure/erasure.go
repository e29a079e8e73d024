package erasure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// ErrInTheWay is wrapped by the error about a key that has work in the database.
var ErrInTheWay = errors.New("work of the key is in the way")

// errNotOwner refuses an erasure by a role that may not change the audit log.
var errNotOwner = errors.New("this role does not own Troupe's tables, and only their owner may change the audit log: run it as the role that ran migrate")

// guide is the page that an error about a missing right names.
const guide = "docs/erasure.md"

// A Desk erases the data of keys in one database. It is safe for concurrent use.
type Desk struct{ Pool *pgxpool.Pool }

// A Change is the number of rows of a table that an erasure changes.
type Change struct {
	Table  string `json:"table"`
	Rows   int64  `json:"rows"`
	Effect string `json:"effect"` // deleted or blanked
}

// An Obstacle is the number of rows of a table that are in the way, with the remedy.
type Obstacle struct {
	Table  string `json:"table"`
	Rows   int64  `json:"rows"`
	Remedy string `json:"remedy"`
}

// A Report lists what an erasure changes or has changed. It contains nothing of the data, and no key.
type Report struct {
	Digest   string     `json:"digest"` // hexadecimal SHA-256 of the key, as in troupe.erasures
	Before   *time.Time `json:"erased_before,omitempty"`
	Changes  []Change   `json:"changes"`
	InTheWay []Obstacle `json:"in_the_way"`
}

func checkKey(key string) error {
	if key == "" || !pgtext.Fits(key) {
		return errors.New("erase: want a key that is text in UTF-8, without the character NUL")
	}
	return nil
}

// Plan returns what Erase would do now. It needs the rights of a viewer.
func (d Desk) Plan(ctx context.Context, key string) (r Report, err error) {
	if err := checkKey(key); err != nil {
		return r, err
	}
	err = d.inSnapshot(ctx, pgx.ReadOnly, func(tx pgx.Tx) error {
		r, _, err = plan(ctx, tx, key)
		return err
	})
	return r, err
}

// Erase deletes or blanks all rows of a key in one transaction, and records that without the key. If work of the key is in the way, it
// changes nothing, and its error wraps ErrInTheWay.
func (d Desk) Erase(ctx context.Context, key string, by admin.Actor) (r Report, err error) {
	if err := by.CheckReasoned(); err != nil {
		return r, err
	}
	if err := checkKey(key); err != nil {
		return r, err
	}
	if named(by.Reason, key) || named(by.Name, key) {
		return r, admin.FieldError{Field: "reason", Problem: "reason or actor contain the key, and are kept: name a ticket instead"}
	}
	err = d.inSnapshot(ctx, pgx.ReadWrite, func(tx pgx.Tx) error {
		const owns = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'troupe.saga_events'::regclass"
		var owner bool
		if err := tx.QueryRow(ctx, owns).Scan(&owner); err != nil {
			return err
		}
		if !owner {
			return errNotOwner
		}
		var args pgx.NamedArgs
		if r, args, err = plan(ctx, tx, key); err != nil {
			return err
		}
		if len(r.InTheWay) > 0 {
			return ErrInTheWay
		}
		r.Changes = []Change{}
		changed := map[string]int64{}
		for _, t := range tables {
			if t.statement() == "" {
				continue
			}
			done, err := tx.Exec(ctx, t.statement(), args)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if n := done.RowsAffected(); n > 0 {
				r.Changes = append(r.Changes, Change{t.name, n, t.effect()})
				changed[t.name] = n
			}
		}
		if _, err := tx.Exec(ctx, forget, args); err != nil {
			return fmt.Errorf("subject_keys: %w", err)
		}
		return record(ctx, tx, r.Digest, changed, by)
	})
	return r, err
}

// forget marks the subject as forgotten although it has no key yet, in a database with keys of other subjects. A service that handles a message
// of the subject later then makes no key. If a service makes the key while the erasure runs, the erasure fails, as for any row that changes.
const forget = `
INSERT INTO troupe.subject_keys (subject, forgotten_at)
SELECT sha256(convert_to(@key, 'UTF8')), clock_timestamp()
WHERE EXISTS (SELECT FROM troupe.subject_keys)
ON CONFLICT DO NOTHING`

// named reports whether a text contains the key as a word.
func named(text, key string) bool {
	return regexp.MustCompile(`(^|[^\pL\pN])` + regexp.QuoteMeta(key) + `($|[^\pL\pN])`).MatchString(text)
}

// record writes the erasure to the audit log.
func record(ctx context.Context, tx pgx.Tx, digest string, changed map[string]int64, by admin.Actor) error {
	text, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
INSERT INTO troupe.erasures (actor, reason, key_digest, changed)
VALUES (@actor, @reason, decode(@digest, 'hex'), @changed)`, pg.Args{"actor": by.Name, "reason": by.Reason, "digest": digest, "changed": text})
	return err
}

// durable makes the commit wait for the server's disk, whatever the role's synchronous_commit is: a crash must not bring data back that was
// reported as erased.
const durable = `
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                        ELSE current_setting('synchronous_commit') END, true)`

// inSnapshot calls do in a transaction that sees one snapshot: a row that changes meanwhile is not erased, but is an error.
func (d Desk) inSnapshot(ctx context.Context, mode pgx.TxAccessMode, do func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, d.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: mode}, func(tx pgx.Tx) error {
		if err := admin.LimitLocks(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, durable); err != nil {
			return err
		}
		return do(tx)
	})
	if pg.Classify(err) == pg.Conflict {
		err = fmt.Errorf("rows of the key changed meanwhile, and nothing was erased: repeat it: %w", err)
	}
	if err != nil {
		err = fmt.Errorf("erase: %w", admin.Explain(err, guide))
	}
	return err
}

// plan counts the rows of a key. args are the arguments of the tables' conditions.
func plan(ctx context.Context, tx pgx.Tx, key string) (r Report, args pgx.NamedArgs, err error) {
	// Also the ids of sagas that are not there, since they were removed, or lost with a database that was set back: messages about them may be.
	const find = "SELECT id FROM troupe.sagas WHERE key = @key UNION SELECT saga || '/' || @key FROM troupe.saga_definitions"
	rows, err := tx.Query(ctx, find, pgx.NamedArgs{"key": key})
	if err != nil {
		return r, nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return r, nil, err
	}
	var texts []string
	var all [][]byte
	for _, name := range append(ids, key) {
		texts, all = append(texts, name, pgtext.Indexable(name)), append(all, []byte(name))
	}
	args = pgx.NamedArgs{"key": key, "texts": texts, "bytes": all}
	sum := sha256.Sum256([]byte(key))
	r = Report{Digest: hex.EncodeToString(sum[:]), Changes: []Change{}, InTheWay: []Obstacle{}}
	const before = "SELECT max(at) FROM troupe.erasures WHERE key_digest = @digest"
	if err := tx.QueryRow(ctx, before, pgx.NamedArgs{"digest": sum[:]}).Scan(&r.Before); err != nil {
		return r, nil, err
	}
	for _, t := range tables {
		var work, records int64
		if err := tx.QueryRow(ctx, t.count(), args).Scan(&work, &records); err != nil {
			return r, nil, fmt.Errorf("%s: %w", t.name, err)
		}
		if work > 0 {
			r.InTheWay = append(r.InTheWay, Obstacle{t.name, work, t.remedy})
		}
		if records > 0 {
			r.Changes = append(r.Changes, Change{t.name, records, t.effect()})
		}
	}
	return r, args, nil
}

func (t table) effect() string {
	if t.delete {
		return "deleted"
	}
	return "blanked"
}

// records returns the condition of the rows that the erasure changes.
func (t table) records() string {
	switch {
	case !t.delete && t.blank == nil:
		return "false"
	case t.holds != "":
		return t.holds
	}
	return "true"
}

func (t table) work() string {
	if t.inTheWay == "" {
		return "false"
	}
	return t.inTheWay
}

// count returns the statement that counts the rows that are in the way and the ones that the erasure changes. It reads only the columns of
// the conditions: a viewer may not read the keys of subjects.
func (t table) count() string {
	return fmt.Sprintf(`
SELECT count(*) FILTER (WHERE work), count(*) FILTER (WHERE NOT work AND record)
FROM (SELECT (%s) AS work, (%s) AS record FROM troupe.%s AS t WHERE %s) AS t`, t.work(), t.records(), t.name, t.match)
}

// statement returns the statement that erases rows; "": there is none.
func (t table) statement() string {
	where := fmt.Sprintf("WHERE %s AND %s AND NOT (%s)", t.match, t.records(), t.work())
	switch {
	case t.delete:
		return fmt.Sprintf("DELETE FROM troupe.%s AS t %s", t.name, where)
	case t.blank == nil:
		return ""
	}
	var set []string
	for _, column := range slices.Sorted(maps.Keys(t.blank)) {
		set = append(set, column+" = "+t.blank[column])
	}
	return fmt.Sprintf("UPDATE troupe.%s AS t SET %s %s", t.name, strings.Join(set, ", "), where)
}
