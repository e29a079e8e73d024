package schemas

import (
	"encoding/binary"
	"fmt"

	"github.com/troupe-go/troupe/envelope"
)

// headerSize is the size of a zero byte and the schema id. Source: docs.confluent.io, "Formats, Serializers, and
// Deserializers", wire format.
const headerSize = 5

func appendHeader(b []byte, id uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0), id)
}

// cutHeader returns the schema id and the Avro binary after it. Errors wrap envelope.ErrPayload.
func cutHeader(payload []byte) (id uint32, body []byte, err error) {
	if len(payload) < headerSize {
		return 0, nil, fmt.Errorf("%w: %d bytes, Confluent's wire format has at least %d", envelope.ErrPayload, len(payload), headerSize)
	}
	if payload[0] != 0 {
		return 0, nil, fmt.Errorf("%w: first byte is %#x, Confluent's wire format begins with 0", envelope.ErrPayload, payload[0])
	}
	return binary.BigEndian.Uint32(payload[1:]), payload[headerSize:], nil
}
