package participant

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/troupe-go/troupe/envelope"
)

// HeaderProfile adds to the copy on the dlq topic the headers that another framework's tools look for.
type HeaderProfile int

// The profiles, which may be combined.
const (
	// SpringHeaders are those of Spring Kafka's DeadLetterPublishingRecoverer, numbers in its binary form.
	SpringHeaders HeaderProfile = 1 << iota
	// ConnectHeaders are those of Kafka Connect's errors.deadletterqueue.context.headers.enable (KIP-298), all text.
	ConnectHeaders
)

const (
	springPrefix  = "kafka_dlt-"
	connectPrefix = "__connect.errors."
)

// owns says whether key is one that the profiles would write: an earlier one is replaced.
func (p HeaderProfile) owns(key string) bool {
	return p&SpringHeaders != 0 && strings.HasPrefix(key, springPrefix) ||
		p&ConnectHeaders != 0 && strings.HasPrefix(key, connectPrefix)
}

func (p HeaderProfile) headers(l *deadLetter, group string) (hs []envelope.Header) {
	add := func(key string, value []byte) { hs = append(hs, envelope.Header{Key: key, Value: value}) }
	if p&SpringHeaders != 0 {
		add(springPrefix+"original-topic", []byte(l.Topic))
		add(springPrefix+"original-partition", binary.BigEndian.AppendUint32(nil, uint32(l.partition)))
		add(springPrefix+"original-offset", binary.BigEndian.AppendUint64(nil, uint64(l.offset)))
		add(springPrefix+"original-timestamp", binary.BigEndian.AppendUint64(nil, uint64(l.at.UnixMilli())))
		add(springPrefix+"original-timestamp-type", []byte("CreateTime"))
		add(springPrefix+"original-consumer-group", []byte(group))
		add(springPrefix+"exception-fqcn", []byte(l.class))
		add(springPrefix+"exception-message", []byte(l.text()))
	}
	if p&ConnectHeaders != 0 {
		add(connectPrefix+"topic", []byte(l.Topic))
		add(connectPrefix+"partition", []byte(strconv.Itoa(int(l.partition))))
		add(connectPrefix+"offset", []byte(strconv.FormatInt(l.offset, 10)))
		add(connectPrefix+"connector.name", []byte(group))
		add(connectPrefix+"task.id", []byte("0"))
		add(connectPrefix+"stage", []byte("TASK_PUT"))
		add(connectPrefix+"class.name", []byte(l.handlerName(group)))
		add(connectPrefix+"exception.class.name", []byte(l.class))
		add(connectPrefix+"exception.message", []byte(l.text()))
	}
	return hs
}
