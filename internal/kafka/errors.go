package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Class says what an error of a produce or an admin request asks of whoever sees it.
type Class int

// The classes.
const (
	Unavailable  Class = iota // the broker or the way to it: wait; nothing is wrong with the record
	UnknownTopic              // wait a while, then it is the record's fault
	Unsendable                // this record can never be accepted as it is: too large, corrupt, an invalid topic name
	Refused                   // the broker knows us and says no: ACL, authentication
	Fenced                    // another producer took our place: stop
)

// String is the class as it stands in logs and metrics.
func (c Class) String() string {
	return [...]string{"unavailable", "unknown topic", "unsendable", "refused", "fenced"}[c]
}

// Classify reads the broker's code (the protocol's error codes, kafka.apache.org/protocol), else the kind of the
// error. What nobody knows is Unavailable: waiting loses nothing.
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
