package participant

import (
	"cmp"
	"slices"
	"time"
)

// Stats is what a participant is at now.
type Stats struct {
	Group string
	// Partitions are those that it has, by topic and number. Empty: other members have them, or Run is not on.
	Partitions []PartitionStats
	// Unhandled are the types without a handler here of which messages wait for a member that has one; see
	// Config.UnknownTypeWait.
	Unhandled []UnhandledType
}

// PartitionStats is one partition of a participant.
type PartitionStats struct {
	Topic     string
	Partition int32
	// Term of the lease, which each owner raises by one; 0 as long as it was not got.
	Term int64

	// Next is the low mark: the first offset that has not ended; all below have. -1: nothing is known yet.
	Next int64
	// End is where what can be read ends, the next message's offset: the last stable offset as the broker said last,
	// with a fetch that brought something or, where nothing comes, every 5 s. -1: it has not said.
	End int64
	// Lag is End less Next, in messages, or 0 where either is not known. Offsets that hold no message (compacted away,
	// the ends of transactions) count. What is held has ended here: its keys are in Held.
	Lag int64
	// Age of the oldest message here that has not ended, by its record's timestamp; where there is lag and nothing was
	// fetched, since when that is known. 0: no lag.
	Age time.Duration

	Waiting int // messages that were fetched and have not begun; turns of held keys too
	Running int // messages in transactions under way
	Held    int // keys in troupe.held
	Later   int // messages of a retry topic that were fetched and are not due

	// Paused says that nothing is fetched, since enough waits here or nothing is due.
	Paused bool
	// WaitsFor names what is away, as given to Unavailable or "the database", and Since when; "" when nothing is.
	WaitsFor string
	Since    time.Time
	// Recovered is how many messages took effect since the partition was assigned although their offsets had been committed:
	// the database had lost them, as after a failover to a standby that lagged.
	Recovered int
	// Skipped is how many messages came since the partition was assigned whose offsets had ended before: a few after a
	// crash, all below the watermark after a reset of the group's offsets.
	Skipped int
	// Careful is how many messages are still to run behind marks, since the partition's last owner crashed.
	Careful int
}

// Stats says what p is at. It does no I/O and may be used at any time; the numbers of a partition are of one moment or
// nearly so.
func (p *Participant) Stats() Stats {
	p.mu.Lock()
	c := p.consumer
	p.mu.Unlock()
	s := Stats{Group: p.cfg.Group, Unhandled: p.awaited.types(p.cfg.UnknownTypeWait)}
	if c == nil {
		return s
	}
	now := time.Now()
	for _, w := range c.current() {
		s.Partitions = append(s.Partitions, w.stats(now))
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStats) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return s
}

func (w *worker) stats(now time.Time) PartitionStats {
	lane := w.lane.State()
	s := PartitionStats{
		Topic: w.topic, Partition: w.id, Term: w.term.Load(), Next: w.progress.from(), End: w.progress.end.Load(),
		Waiting: lane.Waiting, Running: lane.Running, Held: w.holds.count(), Later: w.later.count(),
		Paused: w.brake.on(), Careful: int(max(w.careful.Load(), 0)),
		Recovered: int(w.recovered.Load()), Skipped: int(w.skipped.Load()),
	}
	if s.Next >= 0 {
		s.End = max(s.End, s.Next)
		s.Lag = s.End - s.Next
	}
	switch behind := w.progress.behind.Load(); {
	case lane.Open:
		s.Age = max(now.Sub(time.UnixMilli(lane.Oldest.at)), 0)
	case s.Lag > 0 && behind != 0:
		s.Age = max(now.Sub(time.Unix(0, behind)), 0)
	}
	if waits := w.gate.waits.Load(); waits != nil {
		s.WaitsFor, s.Since = waits.what, waits.since
	}
	return s
}
