package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (r *report) checkKafka(ctx context.Context, addresses []string, opts []kgo.Opt, topics []string) {
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addresses...))...)
	if err != nil {
		r.fail("kafka", err.Error(), "check KAFKA_BROKERS")
		return
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		r.fail("kafka", err.Error(), "check KAFKA_BROKERS, and that the brokers are up and reachable from here")
		return
	}
	metadata, err := kadm.NewClient(client).BrokerMetadata(ctx)
	if err != nil {
		r.fail("kafka", err.Error(), "the seed answers, its cluster does not: check the brokers' advertised addresses")
		return
	}
	r.ok("kafka", fmt.Sprintf("%d brokers, seen from %s", len(metadata.Brokers), strings.Join(addresses, ",")))
	if len(topics) == 0 {
		r.ok("topics", "no rows wait")
		return
	}
	details, err := kadm.NewClient(client).ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		r.fail("topics", err.Error(), "see the brokers' logs")
		return
	}
	good := 0
	for _, topic := range topics {
		d, asked := details[topic]
		switch {
		case !asked, errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			r.fail("topics", topic+" does not exist, and rows wait for it",
				"start the participant that provisions it, or create it; after 60 s its rows are parked")
		case d.Err != nil:
			r.fail("topics", topic+": "+d.Err.Error(), "allow the relay to describe and write it")
		default:
			good++
		}
	}
	if good > 0 {
		r.ok("topics", fmt.Sprintf("%d of %d that rows wait for exist", good, len(topics)))
	}
}
