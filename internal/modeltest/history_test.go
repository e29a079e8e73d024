package modeltest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/topics"
)

// theater has the parts that all histories share: the servers, and a database to copy.
type theater struct {
	postgres *devstack.Postgres
	brokers  []string
	template string
	empties  string // statements that empty every table of a history
	flow     string // prefix of the histories' flows
	names    atomic.Int64
	log      func(string) // in addition to rapid, which shows only the shrunk plan's output
}

// history is a plan that runs.
type history struct {
	t       *rapid.T
	theater *theater
	p       plan
	flow    string
	hop     topics.Hop
	ups     [2]topics.Hop
	delay   time.Duration
	local   bool // the topics are local now
	both    bool // members with Brokers run too, until the messages in Kafka have ended
	audit   bool // the second group has started

	ctx        context.Context
	database   string
	saved      string // a copy of the database, "" for none
	savedLocal bool   // the topics are local in the copy
	pool       *pgxpool.Pool
	desk       *repair.Desk
	client     *kgo.Client

	members []*member
	ended   []*member // for their logs

	sent       []message         // in their order
	unsaved    map[int]bool      // messages in the database and not in its copy
	era        int               // rises when messages of a key may be in Kafka and in the database
	eras       map[int]int       // of the messages
	ids        map[int]string    // of sent messages
	numbers    map[string]int    // the same, the other way round
	ended0     map[int]int       // how many lives of a message had ended when the inbox was emptied
	endedSaved map[int]int       // the same, in the copy of the database
	answerIDs  map[string]string // ids of answers, by the answered message
	violations []string
	operated   map[int]bool // messages that an operator released or discarded
	wentBack   bool         // the database was set back

	redrivenLate map[int]bool // messages that were redriven after answers to sagas' commands were deleted
}

// begin creates a history's topics and clients, on a database of its own. They are removed when it ends.
func (th *theater) begin(t *rapid.T, p plan, database string) *history {
	n := th.names.Add(1)
	h := &history{
		t: t, theater: th, p: p, ctx: context.Background(), delay: time.Second, flow: fmt.Sprintf("%s-%d", th.flow, n),
		database: database, ids: make(map[int]string), numbers: make(map[string]int), ended0: make(map[int]int),
		answerIDs: make(map[string]string), eras: make(map[int]int), unsaved: make(map[int]bool), operated: make(map[int]bool), redrivenLate: make(map[int]bool),
	}
	h.hop, h.ups = hops(h.flow)
	t.Cleanup(h.end)
	h.connect()
	h.exec(th.empties)
	h.audit = p.Setup.Audit && !p.Setup.Late
	if p.Setup.Local {
		h.makeLocal()
	}
	if p.Setup.Local && !p.Setup.Moves {
		return h
	}
	var err error
	h.client, err = kafka.NewClient(th.brokers, kgo.UnknownTopicRetries(200), kgo.MetadataMinAge(20*time.Millisecond))
	require.NoError(t, err)
	h.createTopics(h.consumed()...)
	return h
}

// makeLocal makes the topics local.
func (h *history) makeLocal() {
	for _, topic := range h.consumed() {
		h.exec("SELECT troupe.make_local($1, $2)", topic, h.hop.String())
	}
	if h.audit {
		h.exec("SELECT troupe.make_local($1, $2)", h.ups[0].Events(), h.auditGroup())
	}
	h.local = true
}

// awaitLocal waits until members have made the topics local.
func (h *history) awaitLocal() {
	want := len(h.consumed())
	if h.audit {
		want++
	}
	h.await("the topics to be local", stopLimit, func() bool {
		h.staff()
		var n int
		require.NoError(h.t, h.pool.QueryRow(h.ctx, "SELECT count(*) FROM troupe.local_topics WHERE topic = ANY ($1)", h.consumed()).Scan(&n))
		return n == want
	})
}

func (h *history) auditGroup() string { return h.flow + "." + auditName }

// consumed returns the topics that the history sends to.
func (h *history) consumed() []string {
	return []string{h.hop.Commands(), h.ups[0].Events(), h.ups[1].Events()}
}

func (h *history) createTopics(names ...string) {
	admin := kadm.NewClient(h.client)
	h.await("topics that the broker serves", time.Minute, func() bool {
		_, err := admin.CreateTopics(h.ctx, h.p.Setup.Partitions, -1, nil, names...)
		ends, endsErr := admin.ListEndOffsets(h.ctx, names...)
		return err == nil && endsErr == nil && ends.Error() == nil && len(ends) == len(names)
	})
}

func (h *history) connect() {
	var err error
	h.pool, err = pgxpool.New(h.ctx, h.theater.postgres.URL(h.database))
	require.NoError(h.t, err)
	h.desk, err = repair.New(repair.Config{Pool: h.pool})
	require.NoError(h.t, err)
}

// end removes everything.
func (h *history) end() {
	for _, m := range h.members {
		m.kill()
	}
	if h.pool != nil {
		h.pool.Close()
	}
	if h.saved != "" {
		_ = h.theater.postgres.DropDatabase(h.ctx, h.saved)
	}
	if h.client == nil {
		return
	}
	defer h.client.Close()
	admin := kadm.NewClient(h.client)
	if listed, err := admin.ListTopics(h.ctx); err == nil {
		names := slices.DeleteFunc(listed.Names(), func(name string) bool { return !strings.HasPrefix(name, h.flow+".") })
		_, _ = admin.DeleteTopics(h.ctx, names...)
	}
	_, _ = admin.DeleteGroups(h.ctx, h.groups()...)
}

func (h *history) groups() []string { return []string{h.hop.String(), h.auditGroup()} }

func (h *history) exec(sql string, args ...any) {
	_, err := h.pool.Exec(h.ctx, sql, args...)
	require.NoError(h.t, err)
}

// await calls cond until it returns true. A limit detects a failure, it does not measure.
func (h *history) await(what string, limit time.Duration, cond func() bool) {
	if !within(limit, cond) {
		h.fail("waited %s for %s", limit, what)
	}
}

// within calls cond every 10 ms until it returns true or the limit is over.
func within(limit time.Duration, cond func() bool) bool {
	over := time.NewTimer(limit)
	defer over.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if cond() {
			return true
		}
		select {
		case <-tick.C:
		case <-over.C:
			return cond()
		}
	}
}

// fail ends the history with the plan and the known facts.
func (h *history) fail(format string, args ...any) {
	var b strings.Builder
	fmt.Fprintf(&b, format, args...)
	fmt.Fprintf(&b, "\nplan:\n%s", h.p)
	for _, m := range append(slices.Clone(h.ended), h.members...) {
		fmt.Fprintf(&b, "log of member %d:\n%s", m.Process.Pid, tail(m.log.String(), 3000))
	}
	h.theater.log(b.String())
	h.t.Fatalf(format, args...)
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// topicOf returns the topic that m is sent to.
func (h *history) topicOf(m message) string {
	switch {
	case !m.event():
		return h.hop.Commands()
	case m.Second:
		return h.ups[1].Events()
	}
	return h.ups[0].Events()
}

// render returns the message that m describes. It is the same each time.
func (h *history) render(m message) envelope.Message {
	payload, err := json.Marshal(m.Body)
	require.NoError(h.t, err)
	id, known := h.ids[m.N]
	if !known {
		id = envelope.NewID()
		h.ids[m.N], h.numbers[id] = id, m.N
	}
	e := envelope.Message{
		Topic: h.topicOf(m), Payload: payload, ID: id, Type: m.Kind, Source: "model", ContentType: envelope.JSON,
		Extra: []envelope.Header{{Key: headerN, Value: fmt.Append(nil, m.N)}},
	}
	if m.Key != "" {
		e.Key, e.Subject = []byte(m.Key), m.Key
	}
	switch {
	case m.Kind == kindHappened:
		e.Outcome = envelope.Success
	case m.Of > 0:
		e.IdempotencyKey = h.ids[m.Of]
	default:
		e.IdempotencyKey = id
	}
	if m.Kind == kindReacted {
		e.Outcome = envelope.Success
	}
	if m.Saga != "" {
		e.SagaID, e.SagaStep, e.SagaOperation = m.Saga, "step", envelope.Forward
		if m.Kind == kindUndo || m.Undone {
			e.SagaOperation = envelope.Compensate
		}
		if len(h.ended0) > 0 && h.ended0[m.N] == 0 { // its clock must show that it comes after the deleted answers
			e.Time = time.Now().Add(2 * time.Hour)
		}
		if m.Doubt {
			e.Extra = append(e.Extra, envelope.Header{Key: ce.HeaderDoubt, Value: []byte("true")})
		}
	}
	return e
}

// send sends messages in their order: to Kafka, or through the outbox's table if work is local.
func (h *history) send(ms ...message) {
	if !h.local {
		records := make([]*kgo.Record, len(ms))
		for i, m := range ms {
			records[i] = kafka.Record(h.render(m))
		}
		require.NoError(h.t, h.client.ProduceSync(h.ctx, records...).FirstErr())
		return
	}
	box, err := outbox.New(outbox.Config{Source: "model"})
	require.NoError(h.t, err)
	for _, m := range ms {
		h.unsaved[m.N] = true
		e := h.render(m)
		require.NoError(h.t, pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error {
			return box.Write(h.ctx, tx, outbox.Entry{
				ID: e.ID, Topic: e.Topic, Key: m.Key, Type: e.Type, Payload: e.Payload, ContentType: e.ContentType, Outcome: e.Outcome,
				IdempotencyKey: e.IdempotencyKey, SagaID: e.SagaID, SagaStep: e.SagaStep, SagaOperation: e.SagaOperation, Headers: e.Extra,
			})
		}))
	}
}
