package participant

import (
	"context"
	_ "embed"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/topics"
)

// A rebuild lets handlers of events handle the messages of their topics once more, from an offset on (docs/rebuild.md). Each partition has its part
// of the rebuild. The owner of a partition begins the part when it takes the lease: it sets the watermark back. So the partition is read again, as
// after a loss of the database's last commits, and nothing else is special about its messages: order, retries, held keys, dead letters, crashes and
// new owners are as for any other message. Messages that come during the rebuild are later in the partition, so that each key keeps its order.
//
//	from_offset ──── handled again ────► watermark ── handled again, or now ──► until ── as usual ──►
//
// A message is handled once in each generation: in the inbox its redrive count has the rebuild's generation in its upper bits. A redriven copy in the
// range counts as its original; the first delivery of the two runs.
//
// Only messages that had ended when the part began belong to the rebuild. The part keeps the watermark and the offsets above it that had ended, since
// the inbox may forget their messages before the rebuild ends. The other messages up to until had not ended at that time, and are handled as usual.
// Messages that had ended and have a handler that is not rebuilt are passed over.
//
// A message that has not taken effect must not count as ended. So a part begins only when no message of the partition is held and no dead letter of
// the group is open or being redriven (troupe.unsettled_letters), and the group has no retry topics.

var (
	//go:embed sql/lock_rebuild.sql
	lockRebuild string
	//go:embed sql/undo_rebuild.sql
	undoRebuild string
	//go:embed sql/begin_rebuild.sql
	beginRebuild string
	//go:embed sql/read_rebuild.sql
	readRebuild string
	//go:embed sql/was_rebuilt.sql
	wasRebuilt string
	//go:embed sql/pending_rebuild.sql
	pendingRebuild string
	//go:embed sql/behind_rebuild.sql
	behindRebuild string
	//go:embed sql/cut_rebuild.sql
	cutRebuild string
	//go:embed sql/finish_rebuild.sql
	finishRebuild string
	//go:embed sql/record_handlers.sql
	recordHandlers string
)

const (
	// rebuildEvery is the interval at which a member looks for rebuilds.
	rebuildEvery = 2 * time.Second
	// withhold makes the triggers in_rebuild discard everything that the transaction writes to the outbox and to the deadlines, unless the rebuild of
	// the generation emits. It reads the rebuild's row, since the lease may be older than the rebuild of a redriven message. Generation 0 is no
	// rebuild.
	withhold = `SELECT set_config('troupe.rebuild', CASE WHEN $2 = 0 OR EXISTS (
		SELECT FROM troupe.rebuilds WHERE consumer_group = $1 AND generation = $2 AND emit) THEN '' ELSE 'on' END, true)`
)

// errRebuild ends a membership. The group joins again; as it takes its leases, it begins the rebuild or undoes it.
var errRebuild = errors.New("a rebuild begins or was cancelled: the group is joined again")

// rebuild is a partition's part of a rebuild.
type rebuild struct {
	topicID     uuid.UUID
	generation  int
	handlers    map[string]bool
	from, until int64
	before      seen // the offsets that had ended when this part began
}

// rebuilds holds the state of rebuilds in a partition at the time when its lease was taken.
type rebuilds struct {
	now    *rebuild // nil: none
	undone bool     // this lease has undone a cancelled rebuild, and set the watermark forward
	ever   bool     // a rebuild has begun here, now or earlier: the group's offset in a copy of the broker's disks may be the rebuild's
}

// load runs in the transaction that takes the lease. It undoes a cancelled rebuild of the partition, begins the partition's part of an open rebuild
// if it may begin, and reads the part.
func (r *rebuilds) load(ctx context.Context, tx pgx.Tx, args pg.Args) error {
	*r = rebuilds{}
	var open bool
	var id int64
	switch err := tx.QueryRow(ctx, lockRebuild, args).Scan(&id); {
	case err == nil:
		args["rebuild"], open = id, true
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	tag, err := tx.Exec(ctx, undoRebuild, args)
	if err != nil {
		return err
	}
	r.undone = tag.RowsAffected() > 0
	if open {
		if _, err := tx.Exec(ctx, beginRebuild, args); err != nil {
			return err
		}
	}
	if err := tx.QueryRow(ctx, wasRebuilt, args).Scan(&r.ever); err != nil || !open || !r.ever {
		return err
	}
	var generation int
	var topicID uuid.UUID
	var from, until, watermark int64
	var epoch int32
	var handlers []string
	var low, high []int64
	var epochs []int32
	err = tx.QueryRow(ctx, readRebuild, args).
		Scan(&generation, &handlers, &topicID, &from, &until, &watermark, &epoch, &low, &high, &epochs)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	r.now = &rebuild{topicID: topicID, generation: generation, from: from, until: until, handlers: make(map[string]bool)}
	r.now.setBefore(watermark, epoch, low, high, epochs)
	for _, name := range handlers {
		r.now.handlers[name] = true
	}
	return nil
}

// under reports whether the rebuild has messages left to handle in the partition, which is read from the offset next on.
func (r *rebuilds) under(topicID uuid.UUID, next int64) bool {
	return r.now != nil && r.now.topicID == topicID && next < r.now.until
}

// generation returns the generation of the rebuild in which m runs; 0 if m does not run in a rebuild.
func (m *message) generation() int { return m.redrive >> deadletter.GenerationShift }

// classify marks m as a message of the rebuild, if the rebuild handles it again: it sets m's redrive count to the rebuild's generation.
func (r *rebuilds) classify(m *message, group string) {
	if r.now.hadEnded(m) && r.now.has(m, group) {
		m.rebuilt, m.redrive = true, r.now.generation<<deadletter.GenerationShift
		m.dropObserved()
	}
}

// restoreRebuild sets the redrive count of a message from troupe.held that was held in a rebuild. redrive is the stored count.
func (m *message) restoreRebuild(redrive int) {
	if redrive>>deadletter.GenerationShift > m.generation() {
		m.rebuilt, m.redrive = true, redrive
		m.dropObserved()
	}
}

// dropObserved removes the handler of m if m belongs to a rebuild and this member only observes its type: the observers saw m before the rebuild. m
// then waits for a member with a handler of On.
func (m *message) dropObserved() {
	if m.generation() > 0 && m.handler.onlyObserves() {
		m.handler = nil
	}
}

// excludes reports whether m had ended before the rebuild began and is not for a handler of the rebuild.
func (r *rebuilds) excludes(m *message, group string) bool {
	return r.now.hadEnded(m) && !r.now.has(m, group)
}

// setBefore sets the offsets that had ended when the part began: all up to watermark, and some ranges above it.
func (r *rebuild) setBefore(watermark int64, epoch int32, low, high []int64, epochs []int32) {
	if epoch < 0 { // not known
		epoch = math.MaxInt32
	}
	r.before.topicID, r.before.watermark.offset, r.before.watermark.epoch = r.topicID, watermark, epoch
	runs := make([]offsetRange, len(low))
	for i := range low {
		runs[i] = offsetRange{low[i], high[i], epochs[i]}
	}
	r.before.above = map[uuid.UUID][]offsetRange{r.topicID: merge(sorted(runs))}
}

// cut lets no offset from the offset from on count as one that had ended when the part began: the broker has lost the end of the log.
func (r *rebuild) cut(from int64) {
	r.until = min(r.until, from)
	r.before.watermark.offset = min(r.before.watermark.offset, from-1)
	runs := slices.DeleteFunc(r.before.above[r.topicID], func(run offsetRange) bool { return run.low >= from })
	for i := range runs {
		runs[i].high = min(runs[i].high, from-1)
	}
	r.before.above[r.topicID] = runs
}

// hadEnded reports whether m had ended when the part began. It returns false without a rebuild.
func (r *rebuild) hadEnded(m *message) bool {
	return r != nil && r.before.has(m.topicID, m.offset, m.epoch)
}

// has reports whether m is for one of the rebuild's handlers, and not before the rebuild's first offset. It compares m's type and not the handler that
// m has here, since a member without the handler must keep m for a member that has it. It is false for an unreadable message, and for one whose
// handler runs elsewhere.
func (r *rebuild) has(m *message, group string) bool {
	return m.offset >= r.from && m.unreadable == nil && !m.elsewhere && (r.handlers[group+"/"+m.Type] || r.handlers[group+"/"+allTypes])
}

// refusal returns the reason why h cannot be rebuilt, or "" if it can.
func (h *handler) refusal(p *Participant) string {
	switch parsed, err := topics.Parse(h.topic); {
	case p.notRebuilt != "":
		return p.notRebuilt
	case err != nil || parsed.Kind != topics.Events:
		return "it handles commands or deadlines, which have answers, or other messages that follow from them"
	case h.answers:
		return "it answers events, and other services have acted on its answers: write the read model in a handler of On or OnAll"
	case h.alone:
		return "it is Alone, as handlers are that call other services"
	case p.registered().delayed() != nil || len(p.former.found)+len(p.former.foreign) > 0: // of any handler, since a type may have had another handler before
		return "its group has retry topics, or former ones that exist still: messages that wait there would take effect twice. Give the read " +
			"model a participant with a group of its own, or delete the former topics once they are empty"
	}
	return ""
}

// recordHandlers writes the group's rows of troupe.handlers, from which an operator's tool knows which handlers can be rebuilt.
func (p *Participant) recordHandlers(ctx context.Context) error {
	var topicNames, names, refusals []string
	for topic, byRoute := range p.registered() {
		for _, h := range byRoute {
			if h.onlyObserves() {
				continue
			}
			topicNames, names, refusals = append(topicNames, topic), append(names, h.name), append(refusals, h.refusal(p))
		}
	}
	_, err := p.cfg.Pool.Exec(ctx, recordHandlers, pg.Args{"group": p.cfg.Group, "topics": topicNames, "handlers": names, "refusals": refusals})
	return err
}

// watchRebuilds looks for rebuilds until ctx ends. It ends the membership when a rebuild can begin, or was cancelled, in a partition of this member.
// It also finishes rebuilds.
func (p *Participant) watchRebuilds(ctx context.Context, c *consumer) {
	trouble := p.repeated("rebuilds")
	tick := time.NewTicker(rebuildEvery)
	defer tick.Stop()
	recorded := false
	for {
		limited, cancel := context.WithTimeout(ctx, p.statementTimeout)
		var err error
		if !recorded {
			err = p.recordHandlers(limited)
			recorded = err == nil
		}
		if err == nil {
			err = p.lookForRebuild(limited, c)
		}
		cancel()
		if ctx.Err() == nil {
			trouble.report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *Participant) lookForRebuild(ctx context.Context, c *consumer) error {
	args := pg.Args{"group": p.cfg.Group, "topics": c.consumed}
	rows, err := p.cfg.Pool.Query(ctx, pendingRebuild, args)
	if err != nil {
		return err
	}
	var at topicPartition
	pending, behind := false, false
	_, err = pgx.ForEachRow(rows, []any{&at.topic, &at.partition}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		w := c.workers[at]
		pending = pending || w != nil && w.term.Load() > 0
		behind = behind || slices.Contains(c.consumed, at.topic)
		return nil
	})
	if err == nil && !behind && len(p.afterBacklog) > 0 {
		err = p.cfg.Pool.QueryRow(ctx, behindRebuild, args).Scan(&behind)
	}
	if err != nil {
		return err
	}
	p.behindRebuild.Store(behind)
	if pending {
		p.cfg.Log.Info().Msg("a rebuild begins or was cancelled: this member joins its group again")
		c.abandon(errRebuild)
		return nil
	}
	var id int64
	switch err := p.cfg.Pool.QueryRow(ctx, finishRebuild, args).Scan(&id); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	p.cfg.Log.Info().Int64("rebuild", id).Msg("rebuild finished")
	return nil
}
