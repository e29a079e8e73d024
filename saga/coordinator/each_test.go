package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// The messages of a flight with a seat for each passenger.
type (
	BookSeat struct {
		Name string `json:"name"`
	}
	SeatBooked struct {
		Seat string `json:"seat"`
	}
	SeatRefused struct{}
	ReleaseSeat struct {
		Seat string `json:"seat"`
	}
	SeatReleased struct{}
	IssueTickets struct {
		Seats []string `json:"seats"`
	}
	TicketsIssued struct{}
)

const flightDefinition = `{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","seats":"any"},"steps":[
 {"name":"seat","forEach":{"list":"data.passengers","as":"passenger","max":20,"parallel":3},"timeout":"1h",
  "command":{"hop":"seats","type":"BookSeat","input":{"name":"passenger.name"}},
  "success":[{"event":"SeatBooked","set":{"seats":"event.seat"}}],"failure":[{"event":"SeatRefused","reason":"'no seat for ' + passenger.name"}],
  "compensation":{"command":{"hop":"seats","type":"ReleaseSeat","input":{"seat":"data.seats[index]"}},"success":[{"event":"SeatReleased"}]}},
 {"name":"ticket","needs":["seat"],"pivot":true,"retriable":true,"timeout":"1h",
  "command":{"hop":"tickets","type":"IssueTickets","input":{"seats":"data.seats"}},"success":[{"event":"TicketsIssued"}]}]}`

// TestAStepWithForEachOnRealServers books seats for 0 to 20 passengers: all of them, with one that is refused, and with one whose
// command is given up, which an operator sends again.
func TestAStepWithForEachOnRealServers(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprintf("local %t", local), func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: local, pool: testkit.Database(t), fail: make(map[string]error)}
			seats := f.pool
			if !local {
				seats = testkit.Database(t)
			}
			_, err := seats.Exec(t.Context(), takenTable)
			require.NoError(t, err)
			f.serveSeats(seats)
			d := parsed(t, flightDefinition)
			f.c = f.coordinator(d)

			many := make([]string, 20)
			for i := range many {
				many[i] = fmt.Sprintf("p%02d", i)
			}
			f.setFail("broken", retry.Permanent(errors.New("the server answers 503")))
			for key, names := range map[string][]string{
				"empty": {}, "one": {"a"}, "three": {"a", "b", "c"}, "many": many, "refused": {"a", "full", "c", "d", "e"}, "given-up": {"a", "broken", "c"},
			} {
				f.startFlight(key, names)
			}
			seated := func(key string, want saga.Status) saga.State {
				t.Helper()
				var s saga.State
				testkit.Wait(t, fmt.Sprintf("flight %s to be %s", key, want), func() (bool, error) {
					var text []byte
					if err := f.pool.QueryRow(t.Context(), "SELECT state FROM troupe.sagas WHERE key = $1", key).Scan(&text); err != nil {
						return false, err
					}
					var err error
					s, err = d.ReadState(text)
					if err == nil && s.Status != want {
						err = fmt.Errorf("it is %s: %s %v", s.Status, s.Reason, s.Steps)
					}
					return err == nil, err
				})
				return s
			}
			require.Equal(t, []any{}, seated("empty", saga.Completed).Data["seats"])
			require.Equal(t, []any{"seat of a"}, seated("one", saga.Completed).Data["seats"])
			require.Equal(t, []any{"seat of a", "seat of b", "seat of c"}, seated("three", saga.Completed).Data["seats"])
			for i, v := range seated("many", saga.Completed).Data["seats"].([]any) {
				require.Equal(t, "seat of "+many[i], v)
			}
			require.Equal(t, "no seat for full", seated("refused", saga.Compensated).Reason)
			var taken int
			require.NoError(t, seats.QueryRow(t.Context(), "SELECT count(*) FROM taken WHERE flight = 'refused' AND NOT free").Scan(&taken))
			require.Zero(t, taken)

			seated("given-up", saga.Parked)
			list, _, err := f.desk().List(t.Context(), sagadesk.Filter{Step: "seat[1]"}, sagadesk.Page{})
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, "flight/given-up", list[0].ID)
			_, err = f.act("flight/given-up", saga.Event{Kind: saga.ActRetry, Step: "seat"})
			require.ErrorContains(t, err, "step seat has 3 items: name one of them, such as seat[0]")
			f.setFail("broken", nil)
			_, err = f.act("flight/given-up", saga.Event{Kind: saga.ActRetry, Step: "seat[1]"})
			require.NoError(t, err)
			require.Equal(t, []any{"seat of a", "seat of broken", "seat of c"}, seated("given-up", saga.Completed).Data["seats"])

			require.NoError(t, f.desk().ReplayAll(t.Context(), "", func(r sagadesk.Replayed) error {
				require.Empty(t, r.Difference, r.ID)
				return nil
			}))
		})
	}
}

func (f *flow) startFlight(key string, names []string) {
	f.t.Helper()
	passengers := make([]any, len(names))
	for i, name := range names {
		passengers[i] = map[string]any{"name": name}
	}
	require.NoError(f.t, pgx.BeginFunc(f.t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := f.c.Start(f.t.Context(), tx, "flight", map[string]any{"id": key, "passengers": passengers})
		return err
	}))
}

// serveSeats runs the hops of a flight.
func (f *flow) serveSeats(pool *pgxpool.Pool) {
	p := f.participant("seats", pool)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[BookSeat]) (participant.Outcome, error) {
		f.mu.Lock()
		err := f.fail[c.Body.Name]
		f.mu.Unlock()
		if err != nil {
			return participant.Outcome{}, err
		}
		return bookSeat(ctx, tx, c)
	})
	participant.Handle(p, releaseSeat)
	f.run(p, pool)
	tickets := f.participant("tickets", f.pool)
	participant.Handle(tickets, issueTickets)
	f.run(tickets, f.pool)
}

// TestASagaWithAsManyItemsAsADefinitionAllowsIsStored begins all items of the largest definition at once, with the longest names of steps.
func TestASagaWithAsManyItemsAsADefinitionAllowsIsStored(t *testing.T) {
	t.Parallel()
	spec := saga.Spec{Saga: "tour", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "all": saga.Any}}
	for n := range 64 {
		st := saga.Step{
			Name: strings.Repeat("s", 61) + fmt.Sprintf("%02d", n), Command: &saga.Command{Hop: "seats", Type: "BookSeat"},
			Success: []saga.Answer{{Event: "SeatBooked"}}, Irreversible: "a test", Timeout: saga.Duration(time.Hour),
		}
		if n < 10 {
			st.ForEach = &saga.ForEach{List: "data.all", As: "one", Max: 100}
		}
		spec.Steps = append(spec.Steps, st)
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.notRunning(d)
	f.begun("tour", map[string]any{"id": "t-1", "all": make([]int, 100)})
	f.waitCount("a command for each item and each other step", 1054, "SELECT count(*) FROM troupe.outbox WHERE type = 'BookSeat'")
}
