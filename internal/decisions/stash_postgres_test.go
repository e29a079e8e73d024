package decisions

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// database is a database with the sagas of one definition.
type database struct {
	t           testing.TB
	pool        *pgxpool.Pool
	definitions *Definitions
	name        string
}

func newDatabase(t testing.TB, text string) *database {
	t.Helper()
	d, err := saga.Parse([]byte(text))
	require.NoError(t, err)
	ds, err := NewDefinitions([]*saga.Definition{d})
	require.NoError(t, err)
	return &database{t, testkit.Database(t), ds, d.Spec().Saga}
}

// pass runs do in a transaction, and then the search of each saga for which another one has left an event.
func (db *database) pass(do func(*pass) error) {
	db.t.Helper()
	var searches []search
	require.NoError(db.t, pgx.BeginFunc(db.t.Context(), db.pool, func(tx pgx.Tx) error {
		p := db.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk"))
		err := do(p)
		if err == nil {
			_, err = p.end(db.t.Context())
		}
		searches = p.search
		return err
	}))
	for _, s := range searches {
		db.pass(func(p *pass) error { return p.searchStash(db.t.Context(), s) })
	}
}

func (db *database) start(fields map[string]any) {
	db.t.Helper()
	db.pass(func(p *pass) error {
		_, err := p.begin(db.t.Context(), db.name, fields)
		return err
	})
}

func (db *database) take(ms ...Message) {
	db.t.Helper()
	db.pass(func(p *pass) error { return p.messages(db.t.Context(), ms) })
}

func (db *database) status(key string) (status string) {
	db.t.Helper()
	require.NoError(db.t, db.pool.QueryRow(context.Background(), "SELECT status FROM troupe.sagas WHERE key = $1", key).Scan(&status))
	return status
}

// TestAnEventOfALongValueIsUsed: an index cannot hold the key or the value, so that its hash is stored.
func TestAnEventOfALongValueIsUsed(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]string{"key": "", "variable": `,"by":{"variable":"guest","field":"guest"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"steps":[
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved"}],"timeout":"1h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door"`+by+`}],"timeout":"24h"}]}`)
			for _, before := range []string{"saga", "step"} {
				key, guest := before+strings.Repeat("x", 300), before+strings.Repeat("y", 300)
				arrived := Message{ID: "m-" + before, Hop: "door", Type: "Arrived", Key: key, Fields: map[string]any{"guest": guest}}
				if before == "saga" {
					db.take(arrived)
				}
				db.start(map[string]any{"id": key, "guest": guest})
				if before == "step" {
					db.take(arrived)
				}
				db.take(Message{ID: "r-" + before, Hop: "rooms", Type: "Reserved", Key: key, Outcome: "success", SagaID: "visit/" + key, SagaStep: "room"})
				require.Equal(t, "completed", db.status(key), "before the %s", before)
			}
		})
	}
}

// TestAnActionThatDoesNotSeeWhichEventsHaveComeIsRefused: the event comes after the transaction of the action has its snapshot. It changes no
// row of the saga.
func TestAnActionThatDoesNotSeeWhichEventsHaveComeIsRefused(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]saga.Event{
		"begins the step": {Kind: saga.ActSkip, Step: "room", Actor: "ann", Reason: "no room"},
		"ends the saga":   {Kind: saga.ActAbandon, Actor: "ann", Reason: "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"steps":[
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved"}],"timeout":"1h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`)
			db.start(map[string]any{"id": "v-1", "guest": "g-1"})
			db.take(Message{ID: "x-1", Hop: "rooms", Outcome: "exhausted", SagaID: "visit/v-1", SagaStep: "room", Reason: "full"})
			tx, err := db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
			_, err = tx.Exec(t.Context(), "SELECT FROM troupe.sagas") // takes the snapshot
			require.NoError(t, err)
			db.take(Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}})
			_, err = db.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk")).act(t.Context(), "visit/v-1", e)
			require.ErrorContains(t, err, "the transaction has isolation level repeatable read")
		})
	}
}

// TestAPreviewOfASagaWithALongKeyHasTheEventsThatAreKeptForIt: the stash has the hash of the saga's id.
func TestAPreviewOfASagaWithALongKeyHasTheEventsThatAreKeptForIt(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, strings.Replace(visits, "LOCK", "", 1))
	key := strings.Repeat("x", 300)
	db.start(map[string]any{"id": key, "guest": "g-1"})
	db.take(Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}})
	db.take(Message{ID: "x-1", Hop: "rooms", Outcome: "exhausted", SagaID: "visit/" + key, SagaStep: "room", Reason: "full"})
	var v Preview
	db.pass(func(p *pass) error {
		err := p.load(t.Context(), []string{"visit/" + key})
		l := p.sagas["visit/"+key]
		v = Preview{Definition: l.d, State: l.state, Group: "flow.desk", Now: p.now}
		return err
	})
	decided, err := v.Act(t.Context(), db.pool, saga.Event{Kind: saga.ActSkip, Step: "room", Actor: "ann", Reason: "no room"})
	require.NoError(t, err)
	require.Len(t, decided, 2)
	require.Equal(t, "m-1", decided[1].Event.Message)
}
