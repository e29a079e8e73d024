package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/retry"
)

// complete takes the steps of making a record that need another system. prepare calls it for each record that it can send. If a mapped row
// names its partition, complete asks the broker whether the topic has that partition. With Config.Avro it encodes the payload.
func (p *publisher) complete(ctx context.Context, i *item) error {
	if i.mapped != nil && i.record.Partition >= 0 {
		err := p.sender.fits(ctx, i.record.Topic, i.record.Partition)
		if errors.Is(err, errPartition) {
			return retry.Permanent(err)
		}
		if err != nil {
			return err
		}
	}
	if p.relay.cfg.Avro == nil {
		return nil
	}
	return p.relay.cfg.encode(ctx, i.record, i.row.Type)
}

// encode encodes a JSON payload with the topic's schema of the registry, and leaves any other payload unchanged. A payload counts as JSON
// if its content type is application/json, or if the record has no content type: a mapped row may have none.
func (c *Config) encode(ctx context.Context, record *kgo.Record, messageType string) error {
	at := headerOf(record, ce.HeaderContentType)
	wanted := record.Value != nil && (at < 0 || string(record.Headers[at].Value) == envelope.JSON) &&
		(c.AvroTopic == nil || c.AvroTopic(record.Topic))
	if !wanted {
		return nil
	}
	encoded, err := c.Avro.Encode(ctx, record.Topic, messageType, record.Value)
	switch {
	case errors.Is(err, envelope.ErrPayload):
		return retry.Permanent(fmt.Errorf("not encodable: %w", err))
	case err != nil:
		return fmt.Errorf("encode for topic %s: %w", record.Topic, err)
	}
	record.Value = encoded.Payload
	if at >= 0 {
		record.Headers[at].Value = []byte(encoded.ContentType)
	}
	return nil
}

// headerOf returns the index of a header in the record, or -1.
func headerOf(r *kgo.Record, key string) int {
	for n := range r.Headers {
		if r.Headers[n].Key == key {
			return n
		}
	}
	return -1
}
