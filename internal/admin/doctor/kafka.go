package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// These are versions of requests by which a broker is known to have a feature. The protocol shows no more of a broker's version.
const (
	topicIDs   = 10 // of Metadata, since 2.8
	testedWith = 10 // of Produce, since 3.7
)

func (e *examination) kafka(ctx context.Context) {
	client, err := kgo.NewClient(append(slices.Clone(e.Kafka), kgo.SeedBrokers(e.Brokers...))...)
	if err != nil {
		e.Fail("kafka", err.Error(), "check KAFKA_BROKERS")
		return
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		e.Fail("kafka", err.Error(), whyNoKafka(err))
		return
	}
	admin := kadm.NewClient(client)
	metadata, err := admin.BrokerMetadata(ctx)
	if err != nil {
		e.Fail("kafka", err.Error(), "the seed answers, its cluster does not: check the brokers' advertised addresses")
		return
	}
	e.Ok("kafka", fmt.Sprintf("%s, seen from %s", counted(len(metadata.Brokers), "broker"), strings.Join(e.Brokers, ",")))
	e.brokers(ctx, admin, metadata.Brokers)
	e.topics(ctx, admin, len(metadata.Brokers))
}

// whyNoKafka returns the remedy for the usual causes.
func whyNoKafka(err error) string {
	var unknown *net.DNSError
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the broker is there, and the user or the password is wrong: check kafka-user and kafka-password"
	case errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return "the broker is there, and wants another way to say who we are: check kafka-sasl"
	case errors.As(err, &unknown):
		return "the host's name is not known here: check KAFKA_BROKERS and the name service"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens there: check KAFKA_BROKERS, and that the brokers are up"
	}
	return "check KAFKA_BROKERS, that the brokers are up and reachable from here, that TLS is on here where it is on there, and user and password"
}

// brokers queries each broker at its advertised address.
func (e *examination) brokers(ctx context.Context, admin *kadm.Client, all kadm.BrokerDetails) {
	versions, err := admin.ApiVersions(ctx)
	if err != nil {
		e.Fail("brokers", err.Error(), "see the brokers' logs")
		return
	}
	speak := make(map[string]int)
	var features []string
	for _, v := range versions.Sorted() {
		at := fmt.Sprintf("broker %d", v.NodeID)
		for _, b := range all {
			if b.NodeID == v.NodeID {
				at = fmt.Sprintf("broker %d, which says that it is at %s:%d", b.NodeID, b.Host, b.Port)
			}
		}
		if v.Err != nil {
			e.Fail("brokers", fmt.Sprintf("%s: %v", at, v.Err), "put its advertised.listeners right for clients here, or open the way to it")
			continue
		}
		speak[v.VersionGuess()]++
		e.broker(at, &v)
		features = featuresOf(v.Raw())
	}
	for _, guess := range slices.Sorted(maps.Keys(speak)) {
		n := speak[guess]
		said := fmt.Sprintf("%s %s", pick(n, "1 speaks", fmt.Sprintf("%d speak", n)), spoken(guess))
		if len(features) > 0 {
			said += ", " + join(features)
		}
		e.Ok("brokers", said)
	}
}

// broker checks whether a broker has the features that relays and participants need.
func (e *examination) broker(at string, v *kadm.BrokerApiVersions) {
	if most, there := v.KeyMaxVersion(int16(kmsg.Metadata)); !there || most < topicIDs {
		e.Fail("brokers", at+" does not support topic ids, by which participants recognise a topic that was created again", "Kafka 3.7 or newer")
		return
	}
	if _, there := v.KeyMaxVersion(int16(kmsg.InitProducerID)); !there {
		e.Fail("brokers", at+" does not support idempotent writes, without which a retry can double or reorder records", "Kafka 3.7 or newer")
		return
	}
	if most, _ := v.KeyMaxVersion(int16(kmsg.Produce)); most < testedWith {
		e.Warn("brokers", at+" speaks an older protocol than Kafka 3.7, the oldest that Troupe is tested with", "Kafka 3.7 or newer")
	}
}

// spoken describes a guess by the versions of requests. A broker that is no release of Apache Kafka may support a mixture.
func spoken(guess string) string {
	if strings.HasPrefix(guess, "v") || strings.HasPrefix(guess, "at least") {
		return "as Apache Kafka " + guess
	}
	return "as no release of Apache Kafka"
}

// featuresOf returns the cluster's finalized features that matter here, such as "transaction.version 2".
func featuresOf(raw *kmsg.ApiVersionsResponse) []string {
	var all []string
	for _, f := range raw.FinalizedFeatures {
		if !slices.Contains([]string{"metadata.version", "group.version", "transaction.version"}, f.Name) {
			continue
		}
		all = append(all, fmt.Sprintf("%s %d", f.Name, f.MaxVersionLevel))
	}
	slices.Sort(all)
	return all
}
