package participant_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/deadletter"
)

// effect is a line of done.
type effect struct {
	position   int64
	id, key    string
	redrive    int
	at         time.Time
	generation int
}

// part is a partition of a rebuild.
type part struct {
	at              topicPartitionOf
	generation      int
	handlers        []string
	cancelled, emit bool
	from            int64
	watermark       *int64
	low, high       []int64
	began           *time.Time
}

func (p part) hadEnded(offset int64) bool {
	if offset <= *p.watermark {
		return true
	}
	for i := range p.low {
		if p.low[i] <= offset && offset <= p.high[i] {
			return true
		}
	}
	return false
}

func (p part) has(d delivered, group string) bool {
	return p.at == d.at && d.offset >= p.from && (slices.Contains(p.handlers, group+"/all") || slices.Contains(p.handlers, group+"/"+d.Type))
}

// compare compares all effects with the ones that may be.
func (h *history) compare() {
	t := h.t
	rows, err := h.projection.pool.Query(t.Context(), `SELECT d.position, d.id, d.key, c.redrive, c.at
		FROM done AS d JOIN (SELECT DISTINCT ON (tx, id) * FROM claims ORDER BY tx, id, redrive) AS c USING (tx, id) ORDER BY d.position`)
	require.NoError(t, err)
	effects := make(map[string]map[int][]effect) // by id and generation
	var e effect
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&e.position, &e.id, &e.key, &e.redrive, &e.at}, func() error {
		n++
		e.generation = e.redrive >> deadletter.GenerationShift
		if effects[e.id] == nil {
			effects[e.id] = make(map[int][]effect)
		}
		effects[e.id][e.generation] = append(effects[e.id][e.generation], e)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, n, h.count("SELECT count(*) FROM done"))
	rows, err = h.projection.pool.Query(t.Context(), `SELECT p.topic, p.partition, r.generation, p.handlers, r.cancelled_at IS NOT NULL, r.emit, p.from_offset,
		p.watermark, p.ended_low, p.ended_high, p.began_at FROM troupe.rebuilds AS r JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id ORDER BY r.id`)
	require.NoError(t, err)
	var parts []part
	var p part
	_, err = pgx.ForEachRow(rows, []any{&p.at.topic, &p.at.partition, &p.generation, &p.handlers, &p.cancelled, &p.emit, &p.from, &p.watermark, &p.low, &p.high, &p.began},
		func() error { parts = append(parts, p); p = part{}; return nil })
	require.NoError(t, err)
	claimed := make(map[string]time.Time) // when the first delivery had ended
	rows, err = h.projection.pool.Query(t.Context(), "SELECT id, min(at) FROM claims WHERE redrive = 0 GROUP BY id")
	require.NoError(t, err)
	var id string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error { claimed[id] = at; return nil })
	require.NoError(t, err)
	dead := make(map[string]bool)
	rows, err = h.projection.pool.Query(t.Context(), "SELECT message_id FROM troupe.dead_letters")
	require.NoError(t, err)
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error { dead[id] = true; return nil })
	require.NoError(t, err)

	entries, begun := 0, 0
	of := make(map[string][]delivered)
	for _, d := range h.delivered {
		of[d.ID] = append(of[d.ID], d)
	}
	emits := make(map[int]bool)
	for _, p := range parts {
		emits[p.generation] = p.emit
		if p.began != nil {
			begun++
		}
	}
	for _, m := range h.sent {
		about := func(generation int) string {
			return fmt.Sprintf("message %s (%s %s) in generation %d: %v", m.ID, m.Type, m.Subject, generation, effects[m.ID])
		}
		if h.discarded[m.ID][0] {
			require.Empty(t, effects[m.ID][0], about(0))
		} else {
			require.Len(t, effects[m.ID][0], 1, about(0))
		}
		most, least := map[int]int{0: 1}, make(map[int]int)
		for _, p := range parts {
			if p.began == nil {
				continue
			}
			for i, d := range of[m.ID] {
				if !p.has(d, h.hop.String()) {
					continue
				}
				if i == 0 && len(of[m.ID]) == 1 {
					require.Equal(t, claimed[m.ID].Before(*p.began), p.hadEnded(d.offset), about(p.generation))
				}
				if !p.hadEnded(d.offset) {
					continue
				}
				most[p.generation] = 1
				if !p.cancelled && d.offset >= h.gone[d.at] && !h.discarded[m.ID][p.generation] {
					least[p.generation] = 1
				}
			}
		}
		for generation, all := range effects[m.ID] {
			require.LessOrEqual(t, len(all), most[generation], about(generation))
			if generation == 0 || emits[generation] {
				entries += len(all)
			}
		}
		for generation := range least {
			require.Len(t, effects[m.ID][generation], 1, about(generation))
		}
	}
	require.Equal(t, entries, h.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND type = 'Refunded'", h.hop.Events()))

	// The order of each key: of its messages that never were dead letters, and came once.
	var single []delivered
	for _, d := range h.delivered {
		if d.Key != nil && len(of[d.ID]) == 1 && !dead[d.ID] {
			single = append(single, d)
		}
	}
	for i, a := range single {
		for _, b := range single[i+1:] {
			if a.Topic != b.Topic || string(a.Key) != string(b.Key) {
				continue
			}
			for generation, ofA := range effects[a.ID] {
				if ofB := effects[b.ID][generation]; len(ofB) > 0 {
					require.Less(t, ofA[0].position, ofB[0].position, "%s before %s in generation %d", a.ID, b.ID, generation)
				}
				for _, p := range parts {
					if first := effects[b.ID][0]; p.generation == generation && p.at == a.at && p.began != nil && len(first) > 0 && first[0].at.After(*p.began) {
						require.Less(t, ofA[0].position, first[0].position, "%s in generation %d before %s", a.ID, generation, b.ID)
					}
				}
			}
		}
	}
	t.Logf("%d messages, %d deliveries, %d effects, %d partitions of rebuilds, %d dead letters", len(h.sent), len(h.delivered), n, begun, len(dead))
}
