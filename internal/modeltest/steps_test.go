package modeltest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/topics"
)

// stopLimit limits the time in which a member stops, or a broker removes one that was killed.
const stopLimit = 4 * time.Minute

var operator = admin.Actor{Name: "model", Reason: "drawn"}

// run runs the steps.
func (h *history) run() {
	for _, s := range h.p.Steps {
		h.do(s)
		if !h.local || s.Do != "send" {
			h.tryRelay()
		}
	}
	if h.p.Setup.Audit && !h.audit {
		h.startAudit()
	}
}

func (h *history) do(s step) {
	switch s.Do {
	case "send":
		h.sent = append(h.sent, s.Messages...)
		for _, m := range s.Messages {
			h.eras[m.N] = h.era
		}
		h.send(s.Messages...)
	case "resend":
		for _, m := range h.sent {
			if m.N == s.N {
				h.resend(m)
			}
		}
	case "let":
		h.let(s.N)
	case "join":
		h.join(task{Die: s.Die, Nth: int64(s.N), Freeze: s.Freeze, Older: s.Older})
	case "leave":
		if m := h.pick(s.N); m != nil {
			h.stop(m)
		}
	case "kill":
		if m := h.pick(s.N); m != nil {
			m.kill()
			h.drop(m)
		}
	case "freeze":
		if m := h.pick(s.N); m != nil && m.up() {
			require.NoError(h.t, m.Process.Signal(syscall.SIGSTOP))
			m.frozen = true
		}
	case "thaw":
		h.thaw()
	case "cut":
		h.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()", memberEnv)
	case "redrive", "discard", "release", "retry":
		h.operate(s)
	case "settle":
		h.settle()
	case "rewind":
		h.rewind(s.Forget)
	case "copy", "set back":
		if h.both {
			h.settle()
		}
		if s.Do == "copy" && !h.local {
			h.awaitWatermarks()
		}
		if s.Peace {
			h.stopAll()
		}
		h.swap(s.Do == "copy")
	case "new topic":
		h.newTopic(h.consumed()[s.N])
	case "become local":
		h.becomeLocal(s.Rolling)
	case "go back":
		if s.Rolling {
			h.joinAs(task{}, false)
		}
		h.goBack(s.Peace)
		h.staff()
	case "audit":
		h.startAudit()
	case "partition":
		h.nextPartition(s.N)
	case "new delay":
		h.stopAll()
		h.delay = 3*time.Second - h.delay
		h.join(task{})
	default:
		h.t.Fatalf("step %q", s.Do)
	}
}

// resend sends m again unchanged, as a sender without an acknowledgement does. The table of local work recognises an id
// already, and no writer inserts it twice.
func (h *history) resend(m message) {
	if !h.local {
		h.send(m)
	}
}

// let waits until n more messages have ended, or for a moment.
func (h *history) let(n int) {
	before := len(h.look().open)
	within(300*time.Millisecond, func() bool {
		h.tryRelay()
		return len(h.look().open) <= max(before-n, 0)
	})
}

func (h *history) join(k task) { h.joinAs(k, h.local) }

func (h *history) joinAs(k task, local bool) {
	k.Audit = h.audit
	k.Setup, k.Local, k.Brokers, k.Flow, k.Delay = h.p.Setup, local, h.theater.brokers, h.flow, h.delay
	k.URL = h.theater.postgres.URL(h.database)
	if k.Local {
		k.Brokers = nil
	}
	m, err := startMember(k)
	require.NoError(h.t, err)
	h.members = append(h.members, m)
}

// pick returns a member that lives and is not frozen.
func (h *history) pick(n int) *member {
	h.bury()
	var some []*member
	for _, m := range h.members {
		if !m.frozen {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[n%len(some)]
}

// bury drops members that have died by their own hook. One that ended in another way has failed.
func (h *history) bury() {
	for _, m := range append([]*member(nil), h.members...) {
		if m.dead() {
			if code := m.ProcessState.ExitCode(); code >= 0 {
				h.violate("member %d ended with exit code %d", m.Process.Pid, code)
			}
			h.drop(m)
		}
	}
}

func (h *history) drop(m *member) {
	for i, other := range h.members {
		if other == m {
			h.members = append(h.members[:i:i], h.members[i+1:]...)
		}
	}
	h.ended = append(h.ended, m)
}

func (h *history) thaw() {
	for _, m := range h.members {
		_ = m.Process.Signal(syscall.SIGCONT) // also one that its hook froze
		m.frozen = false
	}
}

// stop asks a member to stop and expects exit code 0, unless its hook kills it meanwhile.
func (h *history) stop(m *member) {
	h.await("the member to come up", stopLimit, func() bool { return m.up() || m.dead() })
	_ = m.Process.Signal(syscall.SIGCONT)
	_ = m.Process.Signal(syscall.SIGTERM)
	stopped := within(stopLimit, func() bool {
		_ = m.Process.Signal(syscall.SIGCONT)
		return m.dead()
	})
	if !stopped {
		h.violate("member %d did not stop within %s", m.Process.Pid, stopLimit)
		m.kill()
	} else if code := m.ProcessState.ExitCode(); code > 0 {
		h.violate("member %d stopped with exit code %d", m.Process.Pid, code)
	}
	h.drop(m)
}

func (h *history) stopAll() {
	h.bury()
	for len(h.members) > 0 {
		h.stop(h.members[0])
	}
}

// stopOlder ends the rollout: members of the earlier version stop.
func (h *history) stopOlder() {
	for _, m := range slices.Clone(h.members) {
		if m.older {
			h.stop(m)
		}
	}
}

// stopKind stops the members with Local, or the others.
func (h *history) stopKind(local bool) {
	h.bury()
	for _, m := range slices.Clone(h.members) {
		if m.local == local {
			h.stop(m)
		}
	}
}

func (h *history) killKind(local bool) {
	for _, m := range slices.Clone(h.members) {
		if m.local == local {
			m.kill()
			h.drop(m)
		}
	}
}

func (h *history) killAll() {
	for len(h.members) > 0 {
		m := h.members[0]
		m.kill()
		h.drop(m)
	}
}

// rewind makes the groups read everything again, with an empty inbox or with the old one.
func (h *history) rewind(forget bool) {
	if forget {
		h.settle()
		h.awaitRead()
	}
	h.stopAll()
	if forget {
		h.forget()
	}
	admin := kadm.NewClient(h.client)
	for _, group := range h.groups() {
		h.await("group "+group+" to take offsets", stopLimit, func() bool {
			offsets, err := admin.FetchOffsets(h.ctx, group)
			if err != nil || len(offsets) == 0 {
				return true // no member has committed anything
			}
			again := make(kadm.Offsets)
			offsets.Each(func(o kadm.OffsetResponse) { again.AddOffset(o.Topic, o.Partition, 0, -1) })
			return admin.CommitAllOffsets(h.ctx, group, again) == nil
		})
	}
	h.join(task{})
}

// awaitRead waits until the retry topics are read. A second copy of a message that has ended may wait there, after the database was set
// back to before the relay's record of it: the inbox's retention must be longer than that.
func (h *history) awaitRead() {
	admin := kadm.NewClient(h.client)
	h.await("the retry topics to be read", stopLimit, func() bool {
		offsets, err := admin.FetchOffsets(h.ctx, h.hop.String())
		if err != nil {
			return errors.Is(err, kerr.GroupIDNotFound) // nothing was read yet
		}
		ends, err := admin.ListEndOffsets(h.ctx, h.hop.Retry(h.delay), h.hop.Retry(3*time.Second-h.delay))
		if err != nil {
			return false
		}
		read := true
		ends.Each(func(end kadm.ListedOffset) {
			at, committed := offsets.Lookup(end.Topic, end.Partition)
			read = read && (end.Err != nil || end.Offset == 0 || committed && at.At >= end.Offset)
		})
		return read
	})
}

// forget deletes what the retentions keep for a time, with the time of the youngest deleted answer, as participants do.
func (h *history) forget() {
	for _, m := range h.sent {
		h.ended0[m.N] = max(h.ended0[m.N], 1)
	}
	rows, err := h.pool.Query(h.ctx, redrivenLives)
	require.NoError(h.t, err)
	var group, id string
	var redrives int
	_, err = pgx.ForEachRow(rows, []any{&group, &id, &redrives}, func() error {
		n := h.numbers[id]
		h.ended0[n] = max(h.ended0[n], redrives+1)
		return nil
	})
	require.NoError(h.t, err)
	h.exec("DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent; DELETE FROM troupe.answers WHERE command_key IS NULL")
	h.exec(`
		WITH gone AS (DELETE FROM troupe.answers RETURNING consumer_group, answered_at)
		INSERT INTO troupe.inbox_groups AS g (consumer_group, days, barrier_forgotten)
		SELECT consumer_group, 0, max(answered_at) FROM gone GROUP BY consumer_group
		ON CONFLICT (consumer_group) DO UPDATE SET barrier_forgotten = greatest(g.barrier_forgotten, excluded.barrier_forgotten)`)
}

// forgotten reports whether answers to sagas' commands are deleted.
func (h *history) forgotten() (is bool) {
	require.NoError(h.t, h.pool.QueryRow(h.ctx,
		"SELECT EXISTS (SELECT FROM troupe.inbox_groups WHERE barrier_forgotten IS NOT NULL)").Scan(&is))
	return is
}

// awaitWatermarks waits until each partition has a watermark. A copy of the database from before that is as good as an empty one,
// with which a service continues at the group's offsets.
func (h *history) awaitWatermarks() {
	h.thaw()
	h.stopOlder()
	topics := append(h.consumed(), h.hop.Retry(h.delay))
	want := len(topics) * int(h.p.Setup.Partitions)
	if h.audit {
		want += int(h.p.Setup.Partitions)
	}
	h.await("the watermarks", stopLimit, func() bool {
		if h.bury(); len(h.members) == 0 {
			h.join(task{})
		}
		h.thaw()
		var n int
		require.NoError(h.t, h.pool.QueryRow(h.ctx,
			"SELECT count(*) FROM troupe.leases WHERE topic_id IS NOT NULL AND topic = ANY ($1)", topics).Scan(&n))
		return n >= want
	})
}

// swap copies the database, or replaces it by the copy: the commits since then are lost.
func (h *history) swap(copies bool) {
	h.killAll()
	h.pool.Close()
	var err error
	if copies {
		if h.saved != "" {
			require.NoError(h.t, h.theater.postgres.DropDatabase(h.ctx, h.saved))
		}
		h.saved = h.database + "_copy"
		h.await("a copy of the database", stopLimit, func() bool { // its sessions end one by one
			_, err = h.theater.postgres.CreateDatabase(h.ctx, h.saved, h.database)
			return err == nil
		})
		h.endedSaved, h.savedLocal = maps.Clone(h.ended0), h.local
		clear(h.unsaved)
	} else {
		require.NoError(h.t, h.theater.postgres.DropDatabase(h.ctx, h.database))
		_, err = h.theater.postgres.CreateDatabase(h.ctx, h.database, h.saved)
		require.NoError(h.t, err)
		h.ended0, h.wentBack = h.endedSaved, true
		h.sent = slices.DeleteFunc(h.sent, func(m message) bool { return h.unsaved[m.N] })
		clear(h.unsaved)
		if h.local && !h.savedLocal { // Kafka has messages that were handled after the copy
			h.both = true
			h.era++
		}
	}
	h.connect()
	h.staff()
	if h.local {
		h.awaitLocal()
	}
}

// startAudit starts the second group.
func (h *history) startAudit() {
	h.audit = true
	h.staff()
	if h.local {
		h.awaitLocal()
	}
}

// staff joins members so that some run, of each kind and for each group.
func (h *history) staff() {
	h.bury()
	has := func(local bool) bool {
		return slices.ContainsFunc(h.members, func(m *member) bool { return m.local == local && (m.audit || !h.audit) })
	}
	if !has(h.local) {
		h.join(task{})
	}
	if h.both && !has(false) {
		h.joinAs(task{}, false)
	}
}

// becomeLocal makes the topics local: all at once, or while members with Brokers go on with the messages that are in Kafka.
func (h *history) becomeLocal(rolling bool) {
	if rolling {
		h.local, h.both = true, true
		h.era++
		h.awaitLocal()
		return
	}
	h.settle()
	h.stopAll()
	h.makeLocal()
	h.staff()
}

// nextPartition sets the outbox's sequence to a few positions before the end of a partition, and drops earlier ones.
func (h *history) nextPartition(left int) {
	const next = `
		SELECT setval('troupe.outbox_position_seq', p.hi - $1)
		FROM troupe.outbox_partitions AS p, troupe.outbox_position_seq AS s
		WHERE p.state = 'attached' AND p.hi - $1 > s.last_value AND EXISTS (SELECT FROM troupe.outbox_partitions AS n WHERE n.lo = p.hi)
		ORDER BY p.hi
		LIMIT 1`
	h.exec(next, left)
	if h.p.Setup.NoRelay {
		return
	}
	dropper, err := retention.New(retention.Config{Pool: h.pool, Age: -1})
	require.NoError(h.t, err)
	defer dropper.Close()
	ctx, cancel := context.WithTimeout(h.ctx, 5*time.Second) // a frozen member's transaction holds it up; the next call goes on
	defer cancel()
	if _, err = dropper.Drop(ctx, ""); ctx.Err() == nil {
		h.expectNil("drop partitions", err)
	}
}

// goBack returns the topics to Kafka, in the middle of their work. Rows that a member has locked are refused until its session ends.
func (h *history) goBack(peace bool) {
	if peace {
		h.stopKind(true)
	} else {
		h.killKind(true)
	}
	for _, topic := range append(h.consumed(), topics.MustHop(h.flow, auditName).Commands()) {
		h.await("the topic to go back to Kafka", stopLimit, func() bool {
			_, err := h.pool.Exec(h.ctx, "SELECT troupe.end_local($1)", topic)
			return err == nil
		})
	}
	h.local, h.both = false, false
	h.tryRelay() // before later messages are sent to Kafka
}

// newTopic deletes a topic whose messages have ended and creates it again.
func (h *history) newTopic(topic string) {
	h.settle()
	h.stopAll()
	admin := kadm.NewClient(h.client)
	h.await("the topic to be deleted", stopLimit, func() bool {
		_, _ = admin.DeleteTopics(h.ctx, topic)
		found, err := admin.ListTopics(h.ctx, topic)
		return err == nil && !found.Has(topic)
	})
	h.createTopics(topic)
	h.client.PurgeTopicsFromClient(topic)
	h.join(task{})
}

// operate runs an operator's action on the present rows.
func (h *history) operate(s step) {
	switch s.Do {
	case "retry":
		_, err := h.desk.Retry(h.ctx, repair.HeldFilter{}, operator)
		h.expectNil("retry", err)
	case "release":
		keys, _, err := h.desk.Held(h.ctx, repair.HeldFilter{}, repair.Page{})
		h.expectNil("list held keys", err)
		if len(keys) == 0 {
			return
		}
		k := keys[s.N%len(keys)]
		n, known := h.numbers[k.MessageID]
		if !known || k.Attempts == 0 {
			return // a deadline, or a message that comes next
		}
		h.operated[n] = true
		_, err = h.desk.Release(h.ctx, k.Place, repair.ReleaseConfig{By: operator, Group: k.Group})
		if !errors.Is(err, repair.ErrGone) && !errors.Is(err, repair.ErrBehind) && !errors.Is(err, admin.ErrBusy) {
			h.expectNil("release", err)
		}
	default:
		letters, _, err := h.desk.List(h.ctx, repair.Filter{}, repair.Page{})
		h.expectNil("list dead letters", err)
		if len(letters) == 0 {
			return
		}
		l := letters[s.N%len(letters)]
		h.operated[h.numbers[l.MessageID]] = h.operated[h.numbers[l.MessageID]] || h.wentBack || h.saved != ""
		f := repair.Filter{IDs: append(repair.Filter{}.IDs, l.ID)}
		if n := h.numbers[l.MessageID]; s.Do == "redrive" && h.ended0[n] > 0 && h.forgotten() {
			h.redrivenLate[n] = true
		}
		if s.Do == "redrive" {
			_, err = h.desk.Redrive(h.ctx, f, repair.RedriveConfig{By: operator, Rate: -1})
		} else {
			_, err = h.desk.Discard(h.ctx, f, operator)
		}
		h.expectNil(s.Do, err)
	}
}

func (h *history) expectNil(what string, err error) {
	if err != nil {
		h.fail("%s: %v", what, err)
	}
}
