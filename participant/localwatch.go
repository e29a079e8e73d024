package participant

import (
	"context"
	_ "embed"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/unclaimed_local.sql
	unclaimedLocal string
	//go:embed sql/not_local.sql
	notLocal string
	//go:embed sql/has_number.sql
	hasNumber string
)

// keepLocal makes consumed topics local again that are not local any more, until ctx ends. A failover or a restore may have set the database back to
// a time before they were local, or troupe.end_local was called before this member had its locks. Without this the member would wait for messages
// that go to Kafka.
func (l *local) keepLocal(ctx context.Context) {
	were := make(map[string]bool) // topics that this member has seen local
	l.p.repeat(ctx, "make topics local again", maxPoll, func(ctx context.Context) error { return l.makeLocalAgain(ctx, were) })
}

// watchNumber checks, every maxPoll until ctx ends, that a session of the database still holds the lock on this participant's member number. If none
// does, the participant takes another number. The session can end on the server, or with its server, while its connection still looks open here: a
// host that is cut off or hangs sends no end. Without the locks of that session other members would take over the entries that this one has claimed,
// and end the entries of topics that only this one consumes.
func (l *local) watchNumber(ctx context.Context) {
	l.p.repeat(ctx, "look for the lock on the number of this member", maxPoll, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, l.p.statementTimeout)
		defer cancel()
		number := l.member.Load()
		if number == 0 {
			return nil
		}
		var has bool
		args := pg.Args{"class": int32(memberClass), "member": number}
		if err := l.p.cfg.Pool.QueryRow(ctx, hasNumber, args).Scan(&has); err != nil || has || l.member.Load() != number {
			return err
		}
		l.p.cfg.Log.Warn().Int32("member", number).Msg("the session with the lock on this member's number has ended on the server, but its connection is still open here: the member takes another number")
		l.renew()
		return nil
	})
}

// makeLocalAgain makes the topics local again that are not local now and that this member has seen local before.
func (l *local) makeLocalAgain(ctx context.Context, were map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	consumed := l.consumedTopics()
	rows, _ := l.p.cfg.Pool.Query(ctx, notLocal, pg.Args{"group": l.p.cfg.Group, "topics": consumed})
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var lost []string
	for _, topic := range consumed {
		switch {
		case !slices.Contains(missing, topic):
			were[topic] = true
		case were[topic]: // else addLocal makes it local
			lost = append(lost, topic)
		}
	}
	if len(lost) == 0 {
		l.lost.Store(nil)
		return nil
	}
	if l.lost.Swap(&lost) == nil {
		l.p.cfg.Log.Error().Strs("topics", lost).Msg("topics are not local any more, as after a failover to a standby that lagged or a " +
			"restore: they are made local again; messages that a relay published meanwhile are in Kafka: to handle them, run a participant with Brokers " +
			"for this group")
	}
	for _, topic := range lost {
		err = errors.Join(err, l.p.makeTopicLocal(ctx, topic))
	}
	l.hint()
	return err
}

// watchUnclaimed logs local work of another group, on the hop's commands topic, that no member claims. That group may be the former name of this one.
func (p *Participant) watchUnclaimed(ctx context.Context) {
	p.repeat(ctx, "find local work of other groups", strandedWarn*strandedEvery, p.warnUnclaimed)
}

func (p *Participant) warnUnclaimed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	topic := p.cfg.Hop.Commands()
	rows, _ := p.cfg.Pool.Query(ctx, unclaimedLocal, pg.Args{"group": p.cfg.Group, "topic": topic, "member_class": int32(memberClass)})
	var group string
	var keys int
	_, err := pgx.ForEachRow(rows, []any{&group, &keys}, func() error {
		p.cfg.Log.Error().Str("topic", topic).Str("former", group).Int("keys", keys).
			Msg("local work of another group waits and no member claims it, and each command is stored for both groups; if this group was " +
				"renamed, stop its members, have the owner of Troupe's tables run SELECT troupe.end_local for the topic, and start them again")
		return nil
	})
	return err
}
