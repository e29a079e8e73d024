package participant

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
)

var (
	//go:embed sql/schedule_deadline.sql
	scheduleDeadline string
	//go:embed sql/schedule_deadlines.sql
	scheduleDeadlines string
	//go:embed sql/keep_deadline.sql
	keepDeadline string
	//go:embed sql/cancel_deadline.sql
	cancelDeadline string
	//go:embed sql/cancel_named.sql
	cancelNamed string
)

// deadlineSet holds the deadlines that one transaction schedules and cancels. The zero value is empty.
type deadlineSet struct {
	scheduled, kept, cancelled map[deadlineID]deadlineRow
}

// earliest is the first time that troupe.deadlines accepts.
var earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)

type deadlineID struct{ scope, name string }

type deadlineRow struct {
	deadlineID
	row   outboxrow.Row
	text  outboxrow.Text
	at    *time.Time
	after time.Duration
}

// plan adds to ds the deadline that Schedule would write. It refuses the same deadlines as Schedule, and then leaves ds unchanged.
func (p *Participant) plan(ctx context.Context, ds *deadlineSet, d Deadline) error {
	r, err := p.deadlineRow(ctx, d)
	if err != nil {
		err = fmt.Errorf("participant %s: schedule deadline %q: %w", p.cfg.Group, d.Name, err)
		if retry.NotBefore(err) > 0 {
			return err // the codec needs a service that is away, such as a store of keys
		}
		return classified{Permanent, err}
	}
	if !d.Keep {
		delete(ds.cancelled, r.deadlineID)
		delete(ds.kept, r.deadlineID)
		put(&ds.scheduled, r)
	} else if _, is := ds.scheduled[r.deadlineID]; !is {
		if _, is := ds.kept[r.deadlineID]; !is {
			put(&ds.kept, r)
		}
	}
	return nil
}

// planCancel adds to ds the deadline that Cancel would remove.
func (p *Participant) planCancel(ctx context.Context, ds *deadlineSet, name, scope string) error {
	_, err := p.expects(name)
	if err == nil {
		scope, err = scopeOf(ctx, scope, "")
	}
	if err != nil {
		return classified{Permanent, fmt.Errorf("participant %s: cancel deadline %q: %w", p.cfg.Group, name, err)}
	}
	r := deadlineRow{deadlineID: deadlineID{scope, name}}
	delete(ds.scheduled, r.deadlineID)
	delete(ds.kept, r.deadlineID)
	put(&ds.cancelled, r)
	return nil
}

func put(to *map[deadlineID]deadlineRow, r deadlineRow) {
	if *to == nil {
		*to = make(map[deadlineID]deadlineRow)
	}
	(*to)[r.deadlineID] = r
}

// queueDeadlines adds the statements of ds to b: one for all cancelled deadlines, one for all scheduled ones, and one for each with Keep. It empties
// ds.
func (p *Participant) queueDeadlines(b *pgx.Batch, ds *deadlineSet) {
	switch gone := inOrder(ds.cancelled); len(gone) {
	case 0:
	case 1:
		b.Queue(cancelDeadline, pg.Args{"group": p.cfg.Group, "scope": gone[0].scope, "name": gone[0].name})
	default:
		c := columnsOf(gone)
		b.Queue(cancelNamed, pg.Args{"group": p.cfg.Group, "scopes": c.scopes, "names": c.names, "limit": len(gone)})
	}
	switch rows := inOrder(ds.scheduled); len(rows) {
	case 0:
	case 1:
		b.Queue(scheduleDeadline, rows[0].args(p.cfg.Group))
	default:
		b.Queue(scheduleDeadlines, columnsOf(rows).args(p.cfg.Group))
	}
	for _, r := range inOrder(ds.kept) {
		b.Queue(keepDeadline, r.args(p.cfg.Group))
	}
	*ds = deadlineSet{}
}

// inOrder returns rows sorted by scope and name. Each statement of queueDeadlines locks its rows of troupe.deadlines in this order, so that two such
// statements cannot deadlock.
func inOrder(rows map[deadlineID]deadlineRow) []deadlineRow {
	all := make([]deadlineRow, 0, len(rows))
	for _, r := range rows {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b deadlineRow) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.name, b.name))
	})
	return all
}

func (p *Participant) deadlineRow(ctx context.Context, d Deadline) (r deadlineRow, err error) {
	h, err := p.expects(d.Name)
	if err != nil {
		return r, err
	}
	scope, err := scopeOf(ctx, d.Scope, d.Key)
	switch {
	case err != nil:
		return r, err
	case d.Body == nil:
		return r, errors.New("no body")
	case d.After != 0 && !d.At.IsZero():
		return r, errors.New("both After and At are set: want one")
	case d.After < 0 || d.After > maxAhead:
		return r, fmt.Errorf("after %s: want 0 to %s", d.After, maxAhead)
	case time.Until(d.At) > maxAhead:
		return r, fmt.Errorf("at %s: want at most %s from now", d.At, maxAhead)
	}
	row, err := p.out.Row(ctx, p.deadlineEntry(ctx, d, scope))
	if err != nil {
		return r, err
	}
	if row.Type != h.typ {
		return r, fmt.Errorf("a body of type %s: its handler expects %s", row.Type, h.typ)
	}
	text, err := row.Text()
	if err != nil {
		return r, err
	}
	r = deadlineRow{deadlineID: deadlineID{scope, d.Name}, row: row, text: text, after: d.After}
	switch {
	case d.At.IsZero():
	case d.At.Before(earliest):
		r.at = &earliest
	default:
		r.at = &d.At
	}
	return r, nil
}

func (r deadlineRow) args(group string) pg.Args {
	return pg.Args{
		"group": group, "scope": r.scope, "name": r.name, "id": r.row.ID, "after": r.after.Seconds(), "at": r.at,
		"key": r.text.Key, "key_bytes": r.row.KeyBytes, "utf8_key": r.text.UTF8Key, "type": r.row.Type, "headers": r.text.Headers,
		"utf8_headers": r.text.UTF8Headers, "raw_headers": r.text.RawHeaders, "payload": r.row.Payload,
	}
}

// deadlineColumns holds the arguments of schedule_deadlines.sql.
type deadlineColumns struct {
	scopes, names, types, headers  []string
	ids                            [][16]byte
	ats                            []*time.Time
	afters                         []float64
	keys                           []*string
	keyBytes, rawHeaders, payloads [][]byte
	utf8Keys, utf8Headers          [][]byte
}

func columnsOf(rows []deadlineRow) (c deadlineColumns) {
	for _, r := range rows {
		c.scopes, c.names = append(c.scopes, r.scope), append(c.names, r.name)
		c.types, c.headers = append(c.types, r.row.Type), append(c.headers, string(r.text.Headers))
		c.utf8Keys, c.utf8Headers = append(c.utf8Keys, r.text.UTF8Key), append(c.utf8Headers, r.text.UTF8Headers)
		c.ids = append(c.ids, r.row.ID)
		c.ats, c.afters = append(c.ats, r.at), append(c.afters, r.after.Seconds())
		c.keys, c.keyBytes = append(c.keys, r.text.Key), append(c.keyBytes, r.row.KeyBytes)
		c.rawHeaders, c.payloads = append(c.rawHeaders, r.text.RawHeaders), append(c.payloads, r.row.Payload)
	}
	return c
}

func (c deadlineColumns) args(group string) pg.Args {
	return pg.Args{
		"group": group, "scopes": c.scopes, "names": c.names, "ids": c.ids, "ats": c.ats, "afters": c.afters, "keys": c.keys,
		"key_bytes": c.keyBytes, "types": c.types, "headers": c.headers, "raw_headers": c.rawHeaders, "payloads": c.payloads,
		"utf8_keys": c.utf8Keys, "utf8_headers": c.utf8Headers,
	}
}
