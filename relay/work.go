package relay

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/retry"
)

// A Source is the source of a relay's rows.
type Source string

// The sources. Poll needs no privilege and no setting. WAL delivers rows when they commit, in that order, and costs the
// database far less.
const (
	Auto Source = "auto" // WAL if the server and the role allow it, else Poll; the log says why
	WAL  Source = "wal"
	Poll Source = "poll"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// slotOf returns the default slot name for a database. Slot names are shared by all databases of a cluster.
func slotOf(database string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, database)
	if plain == database && len(plain) < 50 {
		return "troupe_" + plain
	}
	return fmt.Sprintf("troupe_%.40s_%08x", plain, crc32.ChecksumIEEE([]byte(database)))
}

// work calls once repeatedly until the term ends. It returns errLost and errStop, and retries after other errors.
func (r *Relay) work(idle, term context.Context, p *publisher, once func(idle, term context.Context, p *publisher) error) error {
	backoff := retry.Policy{Initial: 100 * time.Millisecond, Cap: 2 * time.Second}
	for failures := 0; idle.Err() == nil; {
		began := time.Now()
		err := once(idle, term, p)
		if err == nil || errors.Is(err, errLost) || errors.Is(err, errStop) {
			return err
		}
		if term.Err() != nil {
			return nil
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if failures++; time.Since(began) > 10*time.Second {
			failures = 1
		}
		r.state.failed(err)
		r.quiet.failed("source", err)
		pause(idle, backoff.Wait(failures), nil)
	}
	return nil
}

// workOnce chooses a source and publishes from it.
func (r *Relay) workOnce(idle, term context.Context, p *publisher) error {
	source, why, err := r.choose(idle)
	if err != nil {
		return err
	}
	r.state.update(func(s *Status) { s.Source = source })
	if err := r.noteSource(idle, p.lease, source, why); err != nil {
		return err
	}
	if r.cfg.Delivery == ExactlyOnce {
		if err := r.transact(idle, term, p); err != nil {
			return err
		}
		defer p.tx.close()
	}
	if r.mapped == nil {
		number := 1
		if source == Poll && r.shares() {
			number = r.cfg.Shards
		}
		if err := r.divide(idle, p.lease, number); err != nil {
			return err
		}
	}
	if source == Poll {
		r.cfg.Log.Info().Str("source", string(Poll)).Str("why", why).Msg("source")
		r.repeats("the table is polled, with the rows published since the last stored snapshot: " + why)
		return r.pollOutbox(idle, term, p)
	}
	r.cfg.Log.Info().Str("source", string(WAL)).Str("slot", r.cfg.Slot).Msg("source")
	return r.stream(idle, term, p)
}

// noteSource stores the source and the reason for it, for the console.
func (r *Relay) noteSource(ctx context.Context, l *lease, source Source, why string) error {
	args := l.args(pg.Args{"source": string(source), "why": why})
	_, err := r.pool.Exec(ctx, noteSource, args)
	if unconvertible(err) { // the database's encoding lacks a character of the reason
		args["why"] = asciiText(why)
		_, err = r.pool.Exec(ctx, noteSource, args)
	}
	if err != nil {
		return fmt.Errorf("note the source: %w", err)
	}
	return nil
}

// pollOutbox ends streaming, if the table was streamed before, and polls the rows that the stream did not publish.
func (r *Relay) pollOutbox(idle, term context.Context, p *publisher) error {
	db, err := r.bindNow(idle)
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := r.readState(idle, db)
	if err != nil {
		return err
	}
	if st, err = r.native(idle, db, p.lease, st); err != nil {
		return err
	}
	if err := r.leaveSlot(idle, db, p.lease, st); err != nil {
		return err
	}
	return r.poll(idle, term, p, scanned{db.id, st.published})
}

// native discards stored snapshots of another cluster: in this one the same numbers are other transactions, so all rows of
// the table are published, perhaps again.
func (r *Relay) native(ctx context.Context, db *server, l *lease, st standing) (standing, error) {
	if st.published == nil && st.sweep == nil {
		return st, nil
	}
	system, err := systemOf(ctx, db)
	if err != nil || st.system == system {
		return st, err
	}
	r.cfg.Log.Warn().Str("system", system).Str("stored", st.system).
		Msg("the stored state is of another cluster: all rows that are in the table are published, perhaps again")
	st.source, st.system, st.published, st.sweep, st.lsn = Poll, system, nil, nil, 0
	return st, r.store(ctx, db, l, st)
}

// choose returns the source to use, and the reason.
func (r *Relay) choose(ctx context.Context) (s Source, why string, err error) {
	if r.cfg.Source == Poll {
		return Poll, "by configuration", nil
	}
	if r.givenUp.Load() {
		return Poll, errGivenUp.Error(), nil
	}
	obstacle, err := r.obstacle(ctx)
	switch {
	case err != nil:
		return "", "", err
	case obstacle == "" && r.cfg.Source == WAL:
		return WAL, "by configuration", nil
	case obstacle == "":
		return WAL, "the server and the role allow it", nil
	case r.cfg.Source == WAL || r.mapped != nil:
		return "", "", fmt.Errorf("source wal: %s", obstacle)
	}
	return Poll, obstacle, nil
}

// Obstacle returns the reason why the log of db's database cannot be streamed by its role, with the remedy; "" if it can.
// Auto decides by it. Obstacle does not check for a free slot: that shows only when one is created.
func Obstacle(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (string, error) {
	return obstacle(ctx, db, published{publication, "troupe", "outbox"})
}

// published names a table and the publication that should contain it.
type published struct{ publication, schema, table string }

func obstacle(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, p published) (string, error) {
	var level string
	var may, holds, inserts, partly, standby bool
	err := db.QueryRow(ctx, `
		SELECT current_setting('wal_level'), pg_is_in_recovery(),
		       (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)
		         OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(current_user, oid, 'MEMBER')),
		       EXISTS (SELECT FROM pg_publication_tables
		               WHERE pubname = $1 AND schemaname = $2 AND tablename = $3),
		       EXISTS (SELECT FROM pg_publication WHERE pubname = $1 AND pubinsert),
		       EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
		               WHERE p.pubname = $1 AND r.prrelid = to_regclass(format('%I.%I', $2::text, $3::text))
		                 AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL))`,
		p.publication, p.schema, p.table).Scan(&level, &standby, &may, &holds, &inserts, &partly)
	switch {
	case err != nil:
		return "", fmt.Errorf("look for what streaming needs: %w", err)
	case standby:
		return "the server is a standby", nil
	case level != "logical":
		return "wal_level is " + level + ", not logical", nil
	case !may:
		return "the role may not replicate: ALTER ROLE … REPLICATION", nil
	case !holds && p.publication == publication:
		return "publication " + publication + " does not hold troupe.outbox: run outbox-relay migrate", nil
	case !holds:
		return fmt.Sprintf("publication %s does not hold %s.%s: ALTER PUBLICATION %s ADD TABLE …; "+
			"of a partitioned table it must be made WITH (publish_via_partition_root = true)", p.publication, p.schema, p.table, p.publication), nil
	case !inserts:
		return fmt.Sprintf("publication %[1]s does not publish inserts: ALTER PUBLICATION %[1]s SET (publish = 'insert')", p.publication), nil
	case partly:
		return fmt.Sprintf("publication %[1]s has a row filter or a column list for %[2]s.%[3]s: ALTER PUBLICATION %[1]s SET TABLE %[2]s.%[3]s",
			p.publication, p.schema, p.table), nil
	}
	return "", nil
}

// StandbyNamesMatch reports whether synchronous_standby_names matches a walsender with this application name. It may return
// true wrongly for a name that is quoted in an unusual way, or is a keyword of the setting.
func StandbyNamesMatch(setting, application string) bool {
	names := strings.FieldsFunc(strings.ToLower(setting), func(r rune) bool { return strings.ContainsRune(" \t\n,()\"", r) })
	return slices.Contains(names, "*") || application != "" && slices.Contains(names, strings.ToLower(application))
}

// StandbyAdvice is the warning to log if StandbyNamesMatch returns true.
const StandbyAdvice = "synchronous_standby_names takes the relay for a synchronous standby: every commit of every writer waits until the relay " +
	"has published and stored it, a second or more, and is on no other disk then: name your standbys, by their application_name"

// warnOfStandby logs a warning if the server's synchronous_standby_names makes writers wait for this relay.
func (r *Relay) warnOfStandby(ctx context.Context, db *server) error {
	var names string
	if err := db.QueryRow(ctx, "SELECT current_setting('synchronous_standby_names')").Scan(&names); err != nil {
		return fmt.Errorf("read synchronous_standby_names: %w", err)
	}
	if StandbyNamesMatch(names, r.cfg.Pool.Config().ConnConfig.RuntimeParams["application_name"]) {
		r.cfg.Log.Warn().Str("synchronous_standby_names", names).Msg(StandbyAdvice)
	}
	return nil
}

// obstacle calls the function obstacle for the relay's own table. For a mapped table it first creates the publication.
func (r *Relay) obstacle(ctx context.Context) (string, error) {
	if r.mapped == nil {
		return obstacle(ctx, r.pool, published{r.cfg.Publication, "troupe", "outbox"})
	}
	if err := r.mapped.open(ctx, r); err != nil {
		return "", err
	}
	return obstacle(ctx, r.pool, published{r.cfg.Publication, r.mapped.schema, r.mapped.name})
}

const publication = "troupe_outbox"

// scanned is a snapshot of the rows that a stream has published, or nil, with the server process that it is from.
type scanned struct {
	server    string
	published *string
}

// poll publishes from the table until idle ends.
func (r *Relay) poll(idle, term context.Context, p *publisher, but scanned) error {
	idle, stop := context.WithCancel(idle)
	var side sync.WaitGroup
	defer side.Wait()
	defer stop()
	wake := make(chan struct{}, 1)
	source := r.newPoll(p.lease)
	source.wake, source.of, source.published = wake, but.server, but.published
	defer source.close()
	if p.lease.of() > 1 {
		source.looker = r.looker
	} else {
		side.Go(func() { r.listen(idle, outboxrow.Channel, wake) })
	}
	p.source = source
	return r.publish(idle, term, p)
}

func (r *Relay) newPoll(l *lease) *poll {
	return &poll{
		session: session{pool: r.pool}, lease: l, batch: batchOfShard(r.cfg.Batch, l.of()), passes: passLength,
		warn: func(err error) { r.quiet.failed("low mark", err) },
	}
}

// batchOfShard returns the number of rows of a claim if there are shards shards.
func batchOfShard(batch, shards int) int { return max(batch/shards, min(batch, 500)) }

// standing is the row of troupe.relay_state, or of a mapped table in troupe.mapped_tables.
type standing struct {
	there            bool
	source           Source
	system           string
	timeline         int32
	published, sweep *string // snapshots: rows that are published; rows that a sweep is to publish
	lsn              wal.LSN
	publication      *string // publication that lsn belongs to, as sample.sql identifies it; nil: not known
}

func (r *Relay) readState(ctx context.Context, db *server) (s standing, err error) {
	var lsn *string
	query, args := readState, pg.Args{"slot": r.cfg.Slot}
	if r.mapped != nil {
		query, args = readMappedState, r.mapped.args(nil)
	}
	err = db.QueryRow(ctx, query, args).
		Scan(&s.source, &s.system, &s.timeline, &s.published, &s.sweep, &lsn, &s.publication)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, nil
	case err != nil:
		return s, fmt.Errorf("read the relay's state: %w", err)
	}
	s.there = true
	if lsn != nil {
		s.lsn, err = wal.ParseLSN(*lsn)
	}
	return s, err
}

// store stores s. The error wraps errLost when the term is over.
func (r *Relay) store(ctx context.Context, db *server, l *lease, s standing) error {
	query, args := storeState, pg.Args{
		"slot": r.cfg.Slot, "source": s.source, "system_id": s.system, "timeline": s.timeline,
		"published": s.published, "sweep": s.sweep, "lsn": s.lsn.String(), "publication": s.publication,
	}
	if r.mapped != nil {
		query, args = storeMappedState, r.mapped.args(args)
	}
	tag, err := db.Exec(ctx, query, l.args(args))
	switch {
	case err != nil:
		return fmt.Errorf("store the relay's state: %w", err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("store the relay's state: %w", errLost)
	}
	return nil
}
