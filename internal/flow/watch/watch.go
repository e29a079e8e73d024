package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// every is the interval at which the ends of the topics are queried and the stored messages are judged.
const every = time.Second

// A Watcher watches one flow. Its methods are safe for concurrent use. Call Run once.
type Watcher struct {
	cfg       Config
	declared  []byte
	rules     []rule
	counts    counts
	stepLimit time.Duration
}

// New checks cfg. It does not connect yet.
func New(cfg Config) (*Watcher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	w := &Watcher{cfg: cfg, rules: rulesOf(cfg.Declared, cfg.Answer), stepLimit: stepLimit}
	if w.declared, err = cfg.declaration(); err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return w, nil
}

// errAnew ends a session whose partitions have changed, or one of which continues behind a batch that cannot be read.
var errAnew = errors.New("the topics have changed")

const (
	// stepLimit limits the time for storing and judging the records of one read.
	stepLimit = 5 * time.Minute
	// startSteps is the number of steps whose time the start of a session may take: it forgets all findings at once if the declaration has changed.
	startSteps = 12
)

// Run watches until ctx ends, and then returns nil. While the database or the brokers are away it waits for them. It returns an
// error only if waiting does not help: a table, a column, the database, a right or the right password is missing.
func (w *Watcher) Run(ctx context.Context) error {
	w.warnOfLongLimits()
	var told time.Time
	w.counts.judgedUpTo(time.Now())
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if hopeless(err) {
			return fmt.Errorf("watch: %w", err)
		}
		if errors.Is(err, errAnew) || time.Since(began) > 10*time.Second {
			wait = 100 * time.Millisecond
		}
		if !errors.Is(err, errAnew) && time.Since(told) > 30*time.Second {
			w.cfg.Log.Warn().Err(err).Str("flow", w.cfg.Flow).Msg("watching is interrupted: it continues from the stored offsets")
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// warnOfLongLimits logs each rule whose time limit is not shorter than the retention: a message is deleted before its answer is due.
func (w *Watcher) warnOfLongLimits() {
	for _, r := range w.rules {
		if r.within >= w.cfg.Retention {
			w.cfg.Log.Warn().Str("flow", w.cfg.Flow).Str("rule", r.String()).Str("retention", w.cfg.Retention.String()).
				Msg("a missing answer is not found: messages are deleted before it is due; set a longer retention, at most 336h")
		}
	}
}

// hopeless reports whether the error will recur until an operator has changed something.
func hopeless(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case "42P01", "3F000", "42703", "42501", "28P01", "28000", "3D000": // no table, schema or column; rights, password, database
		return true
	}
	return false
}

// session watches from the state in the database until something fails. The state in memory is then dropped, since it is unknown
// whether the last transaction was committed.
func (w *Watcher) session(ctx context.Context) error {
	asks, err := kafka.NewClient(w.cfg.Brokers, w.cfg.Kafka...)
	if err != nil {
		return err
	}
	defer asks.Close()
	s := &session{Watcher: w, asks: asks}
	if err := withLimit(ctx, startSteps*s.stepLimit, s.begin); err != nil {
		return err
	}
	if len(s.places) == 0 {
		s.counts.judgedUpTo(time.Now()) // there is nothing to judge
		return s.idle(ctx)
	}
	from := make(map[string]map[int32]kgo.Offset)
	for p, at := range s.places {
		if from[p.topic] == nil {
			from[p.topic] = make(map[int32]kgo.Offset)
		}
		from[p.topic][p.partition] = kgo.NewOffset().At(at.next)
	}
	reads, err := kafka.NewClient(w.cfg.Brokers, append([]kgo.Opt{
		kgo.ConsumePartitions(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a control record may be the last before the end
		// A transaction for each produced batch would cost the services' machine too much. The watcher judges once a second, so
		// its records may be half a second late. The minimum is far below what a partition may return at once, or a reader that
		// is behind would wait for more.
		kgo.FetchMinBytes(256 << 10),
		kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.FetchMaxBytes(8 << 20),
		kgo.FetchMaxPartitionBytes(1 << 20),
		kgo.MaxConcurrentFetches(2),
		kgo.MaxDecompressBatchBytes(unpackBytes),
		kgo.WithHooks(&s.sizes),
	}, w.cfg.Kafka...)...)
	if err != nil {
		return err
	}
	defer reads.Close()
	for ctx.Err() == nil {
		if err := withLimit(ctx, s.stepLimit, func(ctx context.Context) error { return s.step(ctx, reads) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// withLimit calls fn with a limit of time. Otherwise a server that stops answering would block the watcher for ever. A step that is stopped while
// there is much to judge loses at most the last chunk.
func withLimit(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}

// idle waits before the next search for the flow's first topic.
func (s *session) idle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(every):
		return errAnew
	}
}

// step reads and stores records. When all records that the brokers had at some moment are stored, it judges up to that moment.
func (s *session) step(ctx context.Context, reads *kgo.Client) error {
	if time.Since(s.asked) >= every {
		if err := s.ask(ctx); err != nil {
			return err
		}
		if err := s.skipMarked(ctx); err != nil {
			return err
		}
	}
	limited, cancel := context.WithDeadline(ctx, s.asked.Add(every))
	fetches := reads.PollRecords(limited, s.cfg.Batch)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failed error
	fetches.EachError(func(topic string, partition int32, err error) {
		var tooLarge *kgo.ErrDecompressTooLarge
		switch {
		case errors.As(err, &tooLarge):
			s.block(tooLarge)
		case !errors.Is(err, context.DeadlineExceeded) && failed == nil:
			failed = fmt.Errorf("topic %s/%d: %w", topic, partition, err)
		}
	})
	if failed != nil {
		return failed
	}
	if err := s.store(ctx, fetches); err != nil {
		return err
	}
	if s.passed() {
		return errAnew
	}
	if !s.reached() {
		return nil
	}
	if err := s.judge(ctx, s.asked); err != nil {
		return err
	}
	s.judged = s.asked
	s.counts.judgedUpTo(s.judged)
	return nil
}
