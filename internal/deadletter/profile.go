package deadletter

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/troupe-go/troupe/envelope"
)

// Profile selects the headers of other frameworks that the copy has. participant.Profile has the same values.
type Profile int

// The profiles, which can be combined.
const (
	Spring Profile = 1 << iota
	Connect
)

const (
	springPrefix  = "kafka_dlt-"
	connectPrefix = "__connect.errors."
)

// owns reports whether the profiles write key: then the key's earlier headers are replaced.
func (p Profile) owns(key string) bool {
	return p&Spring != 0 && strings.HasPrefix(key, springPrefix) ||
		p&Connect != 0 && strings.HasPrefix(key, connectPrefix)
}

func (p Profile) headers(l Letter, group string) (hs []envelope.Header) {
	add := func(key string, value []byte) { hs = append(hs, envelope.Header{Key: key, Value: value}) }
	if p&Spring != 0 {
		add(springPrefix+"original-topic", []byte(l.Message.Topic))
		add(springPrefix+"original-partition", binary.BigEndian.AppendUint32(nil, uint32(l.Partition)))
		add(springPrefix+"original-offset", binary.BigEndian.AppendUint64(nil, uint64(l.Offset)))
		add(springPrefix+"original-timestamp", binary.BigEndian.AppendUint64(nil, uint64(l.At.UnixMilli())))
		add(springPrefix+"original-timestamp-type", []byte("CreateTime"))
		add(springPrefix+"original-consumer-group", []byte(group))
		add(springPrefix+"exception-fqcn", []byte(l.Class))
		add(springPrefix+"exception-message", []byte(l.Error))
	}
	if p&Connect != 0 {
		add(connectPrefix+"topic", []byte(l.Message.Topic))
		add(connectPrefix+"partition", []byte(strconv.Itoa(int(l.Partition))))
		add(connectPrefix+"offset", []byte(strconv.FormatInt(l.Offset, 10)))
		add(connectPrefix+"connector.name", []byte(group))
		add(connectPrefix+"task.id", []byte("0"))
		add(connectPrefix+"stage", []byte("TASK_PUT"))
		add(connectPrefix+"class.name", []byte(l.Handler))
		add(connectPrefix+"exception.class.name", []byte(l.Class))
		add(connectPrefix+"exception.message", []byte(l.Error))
	}
	return hs
}
