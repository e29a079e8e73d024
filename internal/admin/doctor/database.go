package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/credentials"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/migrations"
)

const (
	oldest      = 14 // major versions of Postgres that Troupe is tested with
	newest      = 18
	maxSkew     = 5 * time.Second
	clockRounds = 5
	fewLeft     = 10 // per cent of the server's connections
)

// login calls Config.Login, which sets the current password. It has no time limit here: a command that prints the password has
// one.
func (e *examination) login(ctx context.Context) bool {
	if e.Login == nil {
		return true
	}
	e.Database = e.Database.Copy()
	if err := e.Login(ctx, e.Database); err != nil {
		e.Fail("database", "no password: "+err.Error(), "run the command, or read the file, as the user and with the environment of this program")
		return false
	}
	return true
}

func (e *examination) database(ctx context.Context) {
	conn, err := pgx.ConnectConfig(ctx, e.Database.Copy())
	if err != nil {
		e.Fail("database", err.Error(), cmp.Or(e.whyNoLogin(err), whyNoDatabase(err)))
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	e.Ok("database", fmt.Sprintf("%s as %s", conn.Config().Database, conn.Config().User))
	e.pooler(ctx)
	e.server(ctx, conn)
	e.encoding(ctx, conn)
	e.public(ctx, conn)
	e.durability(ctx, conn)
	e.connections(ctx, conn)
	e.clock(ctx, conn)
	usable := e.migrations(ctx)
	if !usable || !e.become(ctx, conn) {
		return
	}
	e.privileges(ctx, conn)
	if e.has(Relay) || e.has(MappedRelay) {
		e.stream(ctx, conn)
	}
	if e.has(Relay) {
		e.owner(ctx, conn)
		e.partitionOwners(ctx, conn)
		e.outbox(ctx, conn)
		e.leader(ctx, conn)
		e.waiting = waitingTopics(ctx, conn)
	}
	if e.has(Participant) || e.has(LocalWork) {
		e.stranded(ctx, conn)
		e.schedules(ctx, conn)
		e.expectations(ctx, conn)
		e.person(ctx, conn)
		e.rebuilds(ctx, conn)
	}
}

// whyNoLogin returns the remedy if the server refused the password and the password is a token that has expired or is not valid
// yet; else "".
func (e *examination) whyNoLogin(err error) string {
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Code != "28P01" && refusal.Code != "28000" {
		return ""
	}
	return credentials.Explain(e.Database.Password, e.Now())
}

// whyNoDatabase returns the remedy for the usual causes. The codes are listed in appendix A of the Postgres manual.
func whyNoDatabase(err error) string {
	var refusal *pgconn.PgError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &refusal):
		switch refusal.Code {
		case "28P01":
			return "the server is there, the password is wrong: correct it where this program reads it (its URL, password file or variable), or ALTER ROLE … PASSWORD"
		case "28000":
			return "the server is there and does not let this role in from here: see pg_hba.conf, and that the role has LOGIN"
		case "3D000":
			return "the server is there, the database is not: CREATE DATABASE, or correct its name in the URL"
		case "53300":
			return "the server is there and has no connection left: see who has them in pg_stat_activity, or raise max_connections"
		case "57P03":
			return "the server starts or stops: ask again soon"
		}
		return "the server is there and says no: see its log"
	case errors.As(err, &unknown):
		return "the host's name is not known here: check the database's URL and the name service"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer: check the host, the port and the firewalls between"
	}
	return "check the database's URL, and that the server is up and lets this role in"
}

func (e *examination) pooler(ctx context.Context) {
	switch found, err := pg.FindPooler(ctx, e.Database); {
	case err != nil:
		e.Warn("pooler", err.Error(), "let this role connect twice")
	case found == pg.PoolsStatement:
		e.Fail("pooler", pg.ErrPooled.Error(), "the server's own address in the database's URL")
	case found == pg.PoolsSessions:
		e.Warn("pooler", "connections go through a pooler; each seems to keep its session, as Troupe needs",
			"better the server's own address in the database's URL")
	}
}

func (e *examination) server(ctx context.Context, conn *pgx.Conn) {
	var number int
	var text string
	var standby bool
	err := conn.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()`).Scan(&number, &text, &standby)
	switch major := number / 10_000; {
	case err != nil:
		e.Fail("server", err.Error(), "see the server's log")
	case major < oldest:
		e.Fail("server", "Postgres "+text, fmt.Sprintf("Postgres %d or newer", oldest))
	case standby:
		e.Fail("server", "Postgres "+text+", a standby: it takes no writes", "connect to the primary")
	case major > newest:
		e.Warn("server", fmt.Sprintf("Postgres %s, newer than what this program is tested with", text), "a newer troupe, once there is one")
	default:
		e.Ok("server", "Postgres "+text)
	}
}

// encoding warns of a database whose bytes the server cannot always convert to UTF-8: SQL_ASCII stores any bytes, and some bytes
// of WIN1252, for example, are no characters.
func (e *examination) encoding(ctx context.Context, conn *pgx.Conn) {
	var name string
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_encoding')").Scan(&name); err != nil {
		e.Warn("encoding", err.Error(), "see the server's log")
		return
	}
	if name != "UTF8" {
		e.Warn("encoding", name+": a row with text that the server cannot convert to UTF-8 is parked",
			"dump the database, and restore it into one that was created with ENCODING 'UTF8'")
	}
}

// public warns if every role may create functions in the schema public, which most roles have in their search_path.
func (e *examination) public(ctx context.Context, conn *pgx.Conn) {
	var open bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'public' AND has_schema_privilege('public', oid, 'CREATE'))").Scan(&open)
	switch {
	case err != nil:
		e.Warn("public", err.Error(), "see the server's log")
	case open:
		e.Warn("public", "every role may create functions in the schema public, and so run code with the rights of each role whose search_path has this schema",
			"REVOKE CREATE ON SCHEMA public FROM PUBLIC; and let only the role of the service that has tables there create in it")
	}
}

// durability warns of settings with which a crash loses committed transactions whose messages may have been sent.
func (e *examination) durability(ctx context.Context, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, `
		SELECT name, setting FROM pg_settings
		WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name`)
	if err != nil {
		e.Warn("durability", err.Error(), "let this role read pg_settings")
		return
	}
	off, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (name string, err error) {
		return name, row.Scan(&name, nil)
	})
	switch {
	case err != nil:
		e.Warn("durability", err.Error(), "let this role read pg_settings")
	case len(off) > 0:
		e.Warn("durability", join(off)+" off: a crash of the server can lose commits whose messages are sent already",
			statements(off, "ALTER SYSTEM SET %s = on;")+"\nSELECT pg_reload_conf();")
	default:
		e.Ok("durability", "a commit is on disk")
	}
}

func (e *examination) connections(ctx context.Context, conn *pgx.Conn) {
	var used, most int
	err := conn.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
		       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`).Scan(&used, &most)
	switch {
	case err != nil:
		e.Warn("connections", err.Error(), "let this role read pg_stat_activity")
	case (most-used)*100 < most*fewLeft:
		e.Warn("connections", fmt.Sprintf("%d of %d are taken", used, most),
			"see who has them: SELECT usename, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC; or raise max_connections")
	default:
		e.Ok("connections", fmt.Sprintf("%d of %d are taken", used, most))
	}
}

// clock compares the database's clock with this machine's, by the fastest of several queries.
func (e *examination) clock(ctx context.Context, conn *pgx.Conn) {
	var skew, within time.Duration
	for n := range clockRounds {
		var there time.Time
		before := e.Now()
		if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&there); err != nil {
			e.Warn("clock", err.Error(), "see the server's log")
			return
		}
		took := e.Now().Sub(before)
		if n == 0 || took/2 < within {
			skew, within = there.Sub(before.Add(took/2)), took/2
		}
	}
	within = within.Round(time.Millisecond) + time.Millisecond
	if off := skew.Abs(); off > maxSkew+within {
		which := "ahead of"
		if skew < 0 {
			which = "behind"
		}
		e.Warn("clock", fmt.Sprintf("the database's is %s %s this machine's", off.Round(time.Millisecond), which)+
			": ids and times made here and there do not go together, and a trace looks out of order",
			"keep both by a time service, such as chrony: chronyc tracking")
		return
	}
	e.Ok("clock", fmt.Sprintf("the database's is this machine's, within %s", max(skew.Abs().Round(time.Millisecond), within)))
}

// migrations reports the version of the tables. usable is false if they cannot be used.
func (e *examination) migrations(ctx context.Context) (usable bool) {
	s, err := migrations.GetConfig(ctx, e.Database)
	var refusal *pgconn.PgError
	switch {
	case errors.Is(err, migrations.ErrPartial):
		e.Fail("migrations", err.Error(), "complete the tables, or drop the schema troupe if it holds nothing yet; then outbox-relay migrate")
	case errors.As(err, &refusal) && refusal.Code == "42501": // a role needs no right to read the version
		e.Info("migrations", "this role may not see how far they are: "+refusal.Message)
		return true
	case err != nil:
		e.Fail("migrations", err.Error(), "outbox-relay migrate, as a role that owns the schema troupe")
	case s.Current == 0:
		e.Fail("migrations", fmt.Sprintf("none, and this program needs version %d", s.Latest), "outbox-relay migrate")
	case s.Pending():
		e.Fail("migrations", fmt.Sprintf("version %d of %d", s.Current, s.Latest),
			fmt.Sprintf("outbox-relay migrate; or run the statements of outbox-relay migrate --print --after %d with a tool of your own", s.Current))
		return true
	case s.Current > s.Latest:
		e.Warn("migrations", fmt.Sprintf("version %d, which is newer than this program's %d: this program works with these tables, and does not use their additions", s.Current, s.Latest),
			"after a rollback: nothing; otherwise: use a program of the newer version")
		return true
	case s.Unrecorded:
		e.Ok("migrations", fmt.Sprintf("version %d, which is this program's, by the tables; troupe.migrations does not list it", s.Current))
		return true
	default:
		e.Ok("migrations", fmt.Sprintf("version %d, which is this program's", s.Current))
		return true
	}
	return false
}

// become sets the connection's role to the one whose rights are examined.
func (e *examination) become(ctx context.Context, conn *pgx.Conn) bool {
	if e.Role == "" {
		return true
	}
	if _, err := conn.Exec(ctx, "SET ROLE "+pgx.Identifier{e.Role}.Sanitize()); err != nil {
		e.Fail("role", err.Error(), "connect as "+e.Role+", or as a role that may become it")
		return false
	}
	e.Ok("role", "the rights of "+e.Role+" are checked")
	return true
}
