package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A Consumer collects the committed records of topics from the first one on, outside any group.
type Consumer struct {
	t       testing.TB
	mu      sync.Mutex
	records []*kgo.Record
	err     error
}

// Consume starts to collect, and stops at the test's Cleanup. A topic may be created later. Records of one partition keep their
// order.
func Consume(t testing.TB, brokers []string, topics ...string) *Consumer {
	t.Helper()
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(250*time.Millisecond),
		// A topic that is created after the client asked for it is found by the next metadata request.
		kgo.MetadataMinAge(50*time.Millisecond),
		kgo.MetadataMaxAge(250*time.Millisecond),
	)
	require.NoError(t, err)
	c := &Consumer{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.poll(ctx, cl)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		cl.Close()
	})
	return c
}

func (c *Consumer) poll(ctx context.Context, cl *kgo.Client) {
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		c.mu.Lock()
		c.records = append(c.records, fetches.Records()...)
		c.err = fetches.Err()
		c.mu.Unlock()
	}
}

// Records returns the records collected so far.
func (c *Consumer) Records() []*kgo.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.records)
}

// WaitN blocks until n records are collected and returns all records, which may be more. It fails the test as Wait does.
func (c *Consumer) WaitN(n int) []*kgo.Record {
	c.t.Helper()
	var records []*kgo.Record
	Wait(c.t, fmt.Sprintf("%d records", n), func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		records = slices.Clone(c.records)
		if len(records) >= n {
			return true, nil // even if the last fetch had an error: no further fetch may come
		}
		return false, errors.Join(fmt.Errorf("%d so far", len(records)), c.err)
	})
	return records
}
