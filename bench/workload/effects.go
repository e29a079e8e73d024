package workload

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/kafka"
)

// answers holds the events that were read.
type answers struct {
	mu       sync.Mutex
	calls    map[call]map[string]int   // ids of the answers to a command, and how often each came
	ends     map[string]map[string]int // the same of a saga's end, by its key
	answered map[call]time.Time        // when the first answer to a command was read
	ended    map[string]ending         // of the first end of a saga
}

type ending struct{ published, read time.Time }

// read reads events until ctx ends.
func (a *answers) read(ctx context.Context, s *Services) {
	for ctx.Err() == nil {
		s.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			m, err := kafka.Message(r)
			if err != nil {
				return
			}
			var c call
			switch m.Type {
			case "Recorded":
				if json.Unmarshal(m.Payload, &c) == nil {
					a.answer(c, m.ID)
				}
			case "OrderCompleted":
				a.end(string(m.Key), m.ID, r.Timestamp)
			}
		})
	}
}

func (a *answers) answer(c call, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count(&a.calls, c, id)
	first(&a.answered, c, time.Now())
}

func (a *answers) end(key, id string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count(&a.ends, key, id)
	first(&a.ended, key, ending{at, time.Now()})
}

// first stores the first value of a key.
func first[K comparable, V any](all *map[K]V, key K, value V) {
	if *all == nil {
		*all = make(map[K]V)
	}
	if _, there := (*all)[key]; !there {
		(*all)[key] = value
	}
}

func count[K comparable](all *map[K]map[string]int, key K, id string) {
	if *all == nil {
		*all = make(map[K]map[string]int)
	}
	if (*all)[key] == nil {
		(*all)[key] = make(map[string]int)
	}
	(*all)[key][id]++
}

// sagas returns the number of sagas that have ended.
func (a *answers) sagas() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ends)
}

// An effect is a row of the table effects.
type effect struct {
	call
	step string
	at   time.Time
}

// A state has the effects and sagas of the database.
type state struct {
	effects []effect          // in the order of their inserts
	sagas   map[string]string // the status of each saga, by key
}

// CountGone counts the commands whose commit the participant has seen and whose effect the database does not have now.
func (s *Services) CountGone(ctx context.Context, url string) error {
	st, err := readEffects(ctx, url)
	if err != nil {
		return err
	}
	there := make(map[call]bool)
	for _, e := range st.effects {
		there[e.call] = true
	}
	s.done.Range(func(c, _ any) bool {
		if !there[c.(call)] {
			s.gone++
		}
		return true
	})
	return nil
}

func readEffects(ctx context.Context, url string) (st state, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return st, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT key, number, step, at FROM effects ORDER BY id")
	if err != nil {
		return st, err
	}
	var e effect
	_, err = pgx.ForEachRow(rows, []any{&e.Key, &e.Number, &e.step, &e.at}, func() error {
		st.effects = append(st.effects, e)
		return nil
	})
	if err != nil {
		return st, err
	}
	if rows, err = conn.Query(ctx, "SELECT id, status FROM troupe.sagas"); err != nil {
		return st, err
	}
	st.sagas = make(map[string]string)
	var id, status string
	_, err = pgx.ForEachRow(rows, []any{&id, &status}, func() error {
		st.sagas[strings.TrimPrefix(id, "order/")] = status
		return nil
	})
	return st, err
}

// settle waits until nothing is missing, or nothing has changed for a minute, and counts.
func (s *Services) settle(ctx context.Context, url string, seen *answers, failed time.Time, commands, sagas *Result) error {
	last, since := [2]int{}, time.Now()
	for {
		st, err := readEffects(ctx, url)
		if err != nil {
			return err
		}
		*commands, *sagas = s.judge(st, seen, failed)
		if commands.Lost+sagas.Lost == 0 || time.Since(since) > time.Minute {
			break
		}
		if now := [2]int{len(st.effects), int(commands.Lost + sagas.Lost)}; now != last {
			last, since = now, time.Now()
		}
		if err := harness.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	if err := harness.Sleep(ctx, 2*time.Second); err != nil { // for repeats
		return err
	}
	st, err := readEffects(ctx, url)
	if err != nil {
		return err
	}
	*commands, *sagas = s.judge(st, seen, failed)
	commands.Gone = s.gone
	return nil
}

// judge compares the database and the events with the commands and sagas that were sent.
func (s *Services) judge(st state, seen *answers, failed time.Time) (commands, sagas Result) {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	effects, newest := make(map[call]int), make(map[string]int64)
	steps := make(map[string][]string)
	for _, e := range st.effects {
		if e.step != "ledger" {
			if slices.Contains(steps[e.Key], e.step) {
				sagas.Doubled++
				continue
			}
			steps[e.Key] = append(steps[e.Key], e.step)
			continue
		}
		if effects[e.call]++; effects[e.call] > 1 {
			commands.Doubled++
			continue
		}
		if e.Number < newest[e.Key] {
			commands.Reordered++
		}
		newest[e.Key] = max(newest[e.Key], e.Number)
		if sent, ok := s.commands.Load(e.call); ok && sent.(sending).at.After(failed) {
			least(&commands.Seconds, e.at.Sub(failed))
		}
	}
	s.commands.Range(func(key, sent any) bool {
		commands.Rows++
		c := key.(call)
		if effects[c] == 0 || len(seen.calls[c]) == 0 {
			commands.Lost++
			return true
		}
		most(&commands.Waited, seen.answered[c].Sub(sent.(sending).acknowledged))
		return true
	})
	copies(seen.calls, &commands)

	s.sagas.Range(func(key, _ any) bool {
		sagas.Rows++
		if _, ok := st.sagas[key.(string)]; !ok {
			sagas.Gone++
		}
		return true
	})
	for key, status := range st.sagas {
		if status != "completed" || len(seen.ends[key]) == 0 || len(steps[key]) != 3 {
			sagas.Lost++
		}
		if !slices.Equal(steps[key], []string{"payment", "inventory", "shipping"}[:len(steps[key])]) {
			sagas.Reordered++
		}
		began, started := s.sagas.Load(key)
		if end, ok := seen.ended[key]; ok && started {
			most(&sagas.Waited, end.read.Sub(began.(time.Time)))
			if began.(time.Time).After(failed) {
				least(&sagas.Seconds, end.published.Sub(failed))
			}
		}
	}
	copies(seen.ends, &sagas)
	return commands, sagas
}

// copies counts events with the same id as repeated, and further events of the same cause as doubled.
func copies[K comparable](of map[K]map[string]int, r *Result) {
	for _, ids := range of {
		r.Doubled += float64(len(ids) - 1)
		for _, n := range ids {
			r.Repeated += float64(n - 1)
		}
	}
}

func least(seconds *float64, d time.Duration) {
	if s := max(d.Seconds(), 0.001); *seconds == 0 || s < *seconds {
		*seconds = s
	}
}

func most(seconds *float64, d time.Duration) { *seconds = max(*seconds, d.Seconds()) }
