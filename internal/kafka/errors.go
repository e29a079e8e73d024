package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Class classifies an error of a produce or an admin request by the caller's reaction to it.
type Class int

// The classes.
const (
	Unavailable  Class = iota // the broker or the network fails: wait; nothing is wrong with the record
	UnknownTopic              // wait a while, then the record is at fault
	Unsendable                // this record can never be accepted as it is: too large, corrupt, an invalid topic name
	Refused                   // the broker answers and refuses: ACL, authentication
	Fenced                    // another client took our transactional id or instance id: stop
)

// String returns the class as logs and metrics have it.
func (c Class) String() string {
	return [...]string{"unavailable", "unknown topic", "unsendable", "refused", "fenced"}[c]
}

// Classify classifies by the broker's code (the protocol's error codes, kafka.apache.org/protocol), else by the kind of the
// error. An unknown error is Unavailable: waiting loses nothing.
func Classify(err error) Class {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return UnknownTopic
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord),
		errors.Is(err, kerr.CorruptMessage), errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.InvalidTimestamp),
		errors.Is(err, kerr.UnsupportedForMessageFormat), errors.Is(err, kerr.PolicyViolation):
		return Unsendable
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed),
		errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed),
		errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.IllegalSaslState):
		return Refused
	case errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.FencedInstanceID):
		return Fenced
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries), errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	}
	return Unavailable
}
