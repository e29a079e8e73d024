package participant

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	commitEvery = 200 * time.Millisecond
	commitLimit = 5 * time.Second
)

// offsets holds, for each partition, the low mark that is still to be committed: the offset up to which every message has ended. The marks of kgo
// cannot be used: kgo keeps the highest offset that was marked, even if one below it is missing.
type offsets struct {
	p      *Participant
	client *kgo.Client

	committing sync.Mutex // one commit at a time
	mu         sync.Mutex
	low        map[topicPartition]lowMark
}

func newOffsets(p *Participant, client *kgo.Client) *offsets {
	return &offsets{p: p, client: client, low: make(map[topicPartition]lowMark)}
}

// set stores m as the low mark of a partition.
func (o *offsets) set(at topicPartition, m lowMark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.low[at] = m
}

// forget drops the low marks of partitions that this member has given up.
func (o *offsets) forget(parts map[string][]int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range flat(parts) {
		delete(o.low, at)
	}
}

// commitOften commits the offsets five times a second, so that little is delivered again after a crash.
func (c *consumer) commitOften(ctx context.Context) {
	trouble := c.p.repeated("commit offsets")
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, commitLimit)
		err := c.offsets.commit(limited)
		cancel()
		if ctx.Err() == nil {
			trouble.report(err)
		}
	}
}

// commit sends the offsets to the broker. After an error it keeps them for the next commit, except where a newer one has come meanwhile.
func (o *offsets) commit(ctx context.Context) error {
	o.committing.Lock()
	defer o.committing.Unlock()
	o.mu.Lock()
	taken := o.low
	o.low = make(map[topicPartition]lowMark, len(taken))
	o.mu.Unlock()
	if len(taken) == 0 {
		return nil
	}
	var next map[string]map[int32]int64
	if o.p.cfg.Hooks.BeforeOffsets != nil || o.p.cfg.Hooks.AfterOffsets != nil {
		next = nextOffsets(taken)
	}
	tell(o.p.cfg.Hooks.BeforeOffsets, next)
	if err := o.send(ctx, taken); err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		newer := o.low
		o.low = taken
		maps.Copy(o.low, newer)
		return err
	}
	tell(o.p.cfg.Hooks.AfterOffsets, next)
	return nil
}

func (o *offsets) send(ctx context.Context, marks map[topicPartition]lowMark) (err error) {
	wanted := make(map[string]map[int32]kgo.EpochOffset)
	for at, offset := range marks {
		if wanted[at.topic] == nil {
			wanted[at.topic] = make(map[int32]kgo.EpochOffset)
		}
		wanted[at.topic][at.partition] = kgo.EpochOffset{Epoch: offset.epoch, Offset: offset.offset + 1}
	}
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for _, t := range req.Topics {
			for i := range t.Partitions {
				note := topicNote(marks[topicPartition{t.Topic, t.Partitions[i].Partition}].topicID)
				t.Partitions[i].Metadata = &note
			}
		}
		return nil
	})
	o.client.CommitOffsetsSync(ctx, wanted, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, sendErr error) {
		if err = sendErr; err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if code := kerr.ErrorForCode(p.ErrorCode); code != nil {
					err = fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, code)
				}
			}
		}
	})
	return err
}

func nextOffsets(marks map[topicPartition]lowMark) map[string]map[int32]int64 {
	all := make(map[string]map[int32]int64)
	for at, offset := range marks {
		if all[at.topic] == nil {
			all[at.topic] = make(map[int32]int64)
		}
		all[at.topic][at.partition] = offset.offset + 1
	}
	return all
}
