package participant_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// Claims has fields that can claim to be large: a few bytes of a message give their length.
type Claims struct {
	Items []string         `avro:"items"`
	Tags  map[string]int64 `avro:"tags"`
	Blob  []byte           `avro:"blob"`
}

// Claimed is the answer to Claims.
type Claimed struct {
	N int64 `avro:"n"`
}

const claimsSchema = `{"type":"record","name":"Claims","namespace":"storm","fields":[
	{"name":"items","type":{"type":"array","items":"string"}},
	{"name":"tags","type":{"type":"map","values":"long"}},
	{"name":"blob","type":"bytes"}]}`

const claimedSchema = `{"type":"record","name":"Claimed","namespace":"storm","fields":[{"name":"n","type":"long"}]}`

func avroCodec(ctx context.Context, address string) envelope.Codec {
	registry, err := schemas.NewRegistry(address)
	must(err)
	codec, err := schemas.New(ctx, schemas.Config{
		Registry: registry, Types: []schemas.Type{schemas.Bind[Claims](claimsSchema), schemas.Bind[Claimed](claimedSchema)},
	})
	must(err)
	return codec
}

func claim(ctx context.Context, tx pgx.Tx, c participant.Command[Claims]) (participant.Outcome, error) {
	err := participant.Queue(ctx, tx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, $3)", string(c.Message.Key), len(c.Body.Items), c.Attempt)
	return participant.Succeed(Claimed{N: int64(len(c.Body.Items))}), err
}

// TestAPoisonStorm checks that bytes that lie about their size become dead letters, that good messages among them take effect,
// and that the member uses as much memory as one that received none of them.
func TestAPoisonStorm(t *testing.T) {
	t.Parallel()
	const messages = 3000
	s := newStage(t)
	s.provision(2)
	address := testkit.Registry(t)
	codec := avroCodec(t.Context(), address)
	good, err := codec.Encode(s.hop.Commands(), Claims{Items: []string{"a", "b"}, Tags: map[string]int64{"x": 1}, Blob: make([]byte, 100)})
	require.NoError(t, err)
	head := good.Payload[:5]
	claims := func(counts ...int64) []byte {
		payload := append([]byte{}, head...)
		for _, n := range counts {
			payload = binary.AppendVarint(payload, n)
		}
		return append(payload, 0, 0, 0)
	}
	bad := []func() []byte{
		func() []byte { b := make([]byte, rand.IntN(300)); fill(b); return b },
		func() []byte { b := make([]byte, 5+rand.IntN(300)); fill(b); copy(b, head); return b },
		func() []byte { return good.Payload[:rand.IntN(len(good.Payload))] },
		func() []byte { return claims(1_000_000) },
		func() []byte { return claims(1 << 40) },
		func() []byte { return claims(-(1 << 62), 1<<62) },
		func() []byte { return claims(0, 1_000_000) },
		func() []byte { return claims(0, 0, 1<<34) },
		func() []byte { return append([]byte{0, 0xff, 0xff, 0xff, 0xff}, 1, 2, 3) }, // an unknown schema
	}
	var records []*kgo.Record
	fine := 0
	for n := range messages {
		m := s.command(fmt.Sprintf("k-%d", n%97), Count{})
		m.Type, m.ContentType, m.Payload = "storm.Claims", good.ContentType, good.Payload
		if n%3 == 0 {
			fine++
		} else {
			m.Payload = bad[rand.IntN(len(bad))]()
		}
		records = append(records, kafka.Record(m))
	}
	s.produce(records...)
	m := s.memberOf(task{Batch: 50, Registry: address})
	s.waitAll("ended", messages, s.ended)
	require.GreaterOrEqual(t, s.count("SELECT count(*) FROM done"), fine, "random bytes may be well-formed by chance")
	require.Equal(t, messages, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events()), "an outcome each")
	peak, known := peakMemory(m.Process.Pid)
	m.terminate(t)
	if known {
		t.Logf("peak memory %d MiB", peak>>20)
		require.Less(t, peak>>20, 500, "a test binary of 60 MiB, with the race detector more; one lie is 16 GiB")
	}
}

// ended returns the number of messages that have taken effect or are dead letters.
func (s *stage) ended() int {
	s.t.Helper()
	return s.count("SELECT count(*) FROM done") + s.count("SELECT count(*) FROM troupe.dead_letters")
}

// peakMemory returns the peak memory of a running process, if Linux reports it. The usage of an ended process is no less than
// the usage of the process that started it.
func peakMemory(pid int) (bytes int, known bool) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if n, err := fmt.Sscanf(line, "VmHWM: %d kB", &bytes); n == 1 && err == nil {
			return bytes << 10, true
		}
	}
	return 0, false
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
}

// TestFailingKeysAmongMany checks that 20 keys that always fail cost the others only the time of their own runs.
func TestFailingKeysAmongMany(t *testing.T) {
	t.Parallel()
	const keys, bad = 2000, 20
	s := newStage(t)
	s.batch = 50
	var all []envelope.Message
	for n := range 2 {
		for k := range keys {
			fail := ""
			if k < bad {
				fail = "error"
			}
			all = append(all, s.command(fmt.Sprintf("k-%04d", k), Count{N: n + 1, Fail: fail}))
		}
	}
	s.send(all...)
	members := []*process{s.member("", 0), s.member("", 0), s.member("", 0)}
	s.waitAll("ended", 2*keys, s.ended)
	require.Equal(t, 2*bad, s.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = 4"))
	require.Equal(t, keys-bad, s.count("SELECT count(*) FROM counters WHERE total = 2"))
	require.Equal(t, 2*keys, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events()), "an outcome each")
	for _, m := range members {
		m.terminate(t)
	}
}
