package participant

import (
	"cmp"
	"slices"
	"time"
)

// Stats is the current state of a participant.
type Stats struct {
	Group string
	// Partitions holds the partitions that are assigned to this member, by topic and number. It is empty if other members have them, or if Run is not
	// active.
	Partitions []PartitionStats
	// Unhandled holds the types for which this member has no handler, and of which messages wait for a member that has one; see
	// Config.UnknownTypeWait.
	Unhandled []UnhandledType
	// Stranded holds the stored messages that no member with this member's configuration handles, as they were at most a minute ago while Run is
	// active. Every member reports all such messages of the group.
	Stranded []Stranded
}

// PartitionStats is one partition of a participant.
type PartitionStats struct {
	Topic     string
	Partition int32
	// Term is the term of the lease, which each owner raises; 0 until the lease is acquired.
	Term int64

	// Next is the low mark: the first offset that has not ended. -1: not known yet.
	Next int64
	// End is the end of the readable log, which is the offset of the next message. It is the last stable offset that the broker returned last: with a
	// fetch that had messages, or every 5 s if there are none. -1: not known yet.
	End int64
	// Lag is End less Next, in messages, or 0 if either is not known. Offsets that hold no message (compacted away, the ends of transactions) count.
	// Held messages do not count, since their offsets have ended; Held counts their keys.
	Lag int64
	// Age is the age of the oldest message here that has not ended, by its record's timestamp. If there is lag and nothing was fetched, it is the
	// time since the lag was first seen. 0: no lag.
	Age time.Duration

	Waiting int // messages that were fetched and have not begun; turns of held keys too
	Running int // messages in transactions under way
	Held    int // keys in troupe.held
	// Limited counts the keys whose next message, or held message, waits for a rate limit or concurrency limit of its handler. LimitedSince is the
	// time since when there has always been at least one such key.
	Limited      int
	LimitedSince time.Time
	Later        int // messages of a retry topic that were fetched and are not due

	// Paused is true while nothing is fetched, since enough messages wait here or none is due.
	Paused bool
	// WaitsFor names the dependency that is away, as given to retry.Unavailable, or "the database"; "" if there is none. Since is the time since when
	// the partition has waited for it.
	WaitsFor string
	Since    time.Time
	// Recovered counts the messages that took effect since the partition was assigned although their offsets had been committed before: the database
	// had lost their effects, as after a failover to a standby that lagged.
	Recovered int
	// Skipped counts messages that were read since the partition was assigned and were not run, because their offsets were recorded as ended before
	// this member took the lease. Expect a few after a crash. After a reset of the group's offsets, expect all messages below the watermark.
	Skipped int
	// Quarantined counts the messages that are still to run in quarantine, since the partition's last owner crashed.
	Quarantined int
}

// Stats returns the state of p. It does no I/O and may be called at any time; the numbers of a partition are of one moment or
// nearly so.
func (p *Participant) Stats() Stats {
	p.mu.Lock()
	c, stranded := p.consumer, slices.Clone(p.stranded)
	p.mu.Unlock()
	s := Stats{Group: p.cfg.Group, Stranded: stranded, Unhandled: p.awaited.types(p.cfg.UnknownTypeWait)}
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
		Waiting: lane.Waiting, Running: lane.Running, Held: w.holds.count(),
		Limited: lane.Parked, LimitedSince: lane.Since,
		Paused: w.brake.on(), Quarantined: int(max(w.quarantined.Load(), 0)),
		Recovered: int(w.recovered.Load()), Skipped: int(w.skipped.Load()),
	}
	if s.Later = w.later.count(); w.later.delay == 0 {
		s.Waiting, s.Later = s.Waiting+s.Later, 0
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
