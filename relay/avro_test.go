package relay_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

const offerAvro = `{"type":"record","name":"shop.Offer","fields":[{"name":"n","type":"long"},{"name":"note","type":["null","string"],"default":null}]}`

// avro holds a registry, behind a proxy that can be closed, and its encoder.
func (s *stage) avro(strategy schemas.Strategy) (direct *schemas.Registry, e *schemas.JSONEncoder, shut *atomic.Bool) {
	s.t.Helper()
	return s.avroWith(strategy, http.StatusServiceUnavailable, "")
}

// avroWith is avro for a proxy that refuses requests with a status, only those whose path contains part.
func (s *stage) avroWith(strategy schemas.Strategy, status int, part string) (direct *schemas.Registry, e *schemas.JSONEncoder, shut *atomic.Bool) {
	s.t.Helper()
	address, err := url.Parse(testkit.Registry(s.t))
	require.NoError(s.t, err)
	direct, err = schemas.NewRegistry(address.String())
	require.NoError(s.t, err)
	shut = &atomic.Bool{}
	behind := httputil.NewSingleHostReverseProxy(address)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shut.Load() && strings.Contains(r.URL.Path, part) {
			w.WriteHeader(status)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	s.t.Cleanup(door.Close)
	registry, err := schemas.NewRegistry(door.URL)
	require.NoError(s.t, err)
	e, err = schemas.NewJSONEncoder(registry, strategy)
	require.NoError(s.t, err)
	return direct, e, shut
}

func decoded(t *testing.T, r *schemas.Registry, payload []byte) string {
	t.Helper()
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: r})
	require.NoError(t, err)
	name, text, err := codec.ToJSON(t.Context(), payload)
	require.NoError(t, err)
	require.Equal(t, "shop.Offer", name)
	return string(text)
}

// Services write JSON, Kafka carries Avro. Only a row that does not encode is parked. A payload that is already Avro, a row
// without a payload, and a row for another topic are left unchanged.
func TestJSONPayloadsBecomeAvro(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	plain := s.createTopic("plain", 1)
	registry, encoder, _ := s.avro(schemas.TopicName)
	_, err := registry.Register(t.Context(), s.topic+"-value", offerAvro)
	require.NoError(t, err)
	cfg := s.config()
	cfg.Avro, cfg.AvroTopic = encoder, func(topic string) bool { return topic != plain }
	seen := publishFailures(&cfg)
	s.start(cfg)
	s.insert(s.topic, "a", `{"n": 1, "note": "x"}`)
	s.insert(s.topic, "bad", `{"n": "one"}`)
	s.insert(s.topic, "bad", `{"n": 2}`)
	s.insert(s.topic, "c", `{"n": 3}`)
	s.insert(plain, "p", `{"n": 4}`)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'none', 'T', NULL)`, s.topic)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, headers)
		VALUES ($1, 'avro', 'T', '\x00', '{"content-type": "application/avro"}')`, s.topic)
	records := testkit.Consume(t, s.brokers, s.topic).WaitN(4)
	require.JSONEq(t, `{"n":1,"note":{"string":"x"}}`, decoded(t, registry, ofKey(records, "a")[0].Value))
	require.Equal(t, "application/avro", header(ofKey(records, "a")[0], "content-type"))
	require.JSONEq(t, `{"n":3,"note":null}`, decoded(t, registry, ofKey(records, "c")[0].Value))
	require.Nil(t, ofKey(records, "none")[0].Value)
	require.Equal(t, "\x00", string(ofKey(records, "avro")[0].Value))
	for {
		if failure := <-seen; failure.Parked {
			require.ErrorContains(t, failure.Err, "not encodable")
			require.ErrorContains(t, failure.Err, "n: want a long")
			break
		}
	}
	left := testkit.Consume(t, s.brokers, plain).WaitN(1)[0]
	require.Equal(t, `{"n": 4}`, string(left.Value))
	require.Equal(t, "application/json", header(left, "content-type"))
	require.Empty(t, ofKey(records, "bad"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
}

// An unavailable registry parks no row and counts no attempt: the relay waits, and reports it.
func TestARegistryThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	registry, encoder, shut := s.avro(schemas.RecordName)
	subject := s.flow + ".Thing"
	_, err := registry.Register(t.Context(), subject, offerAvro)
	require.NoError(t, err)
	shut.Store(true)
	cfg := s.config()
	cfg.Avro = encoder
	cfg.Lease = time.Second
	r := s.start(cfg)
	for n := range 3 {
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', $2, $3)`, s.topic, subject, []byte(`{"n": `+strconv.Itoa(n)+`}`))
	}
	testkit.Wait(t, "a relay that is not ready", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "registry"), nil
	})
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
	require.Zero(t, r.Status().Published)
	shut.Store(false)
	payloads := values(s.collect(3, s.topic)) // with a lease of a second rows may be repeated
	require.Len(t, payloads, 3)
	for n, one := range payloads {
		require.JSONEq(t, `{"n":`+strconv.Itoa(n)+`,"note":null}`, decoded(t, registry, []byte(one)))
	}
}

// A subject that a registry refuses, as one without a right to it, holds no other subject up for longer than UnknownTopic. Its rows are
// not parked, and are published once it is allowed.
func TestASubjectThatTheRegistryRefusesHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	registry, encoder, refused := s.avroWith(schemas.RecordName, http.StatusForbidden, ".Denied/")
	denied, fine := s.flow+".Denied", s.flow+".Thing"
	for _, subject := range []string{denied, fine} {
		_, err := registry.Register(t.Context(), subject, offerAvro)
		require.NoError(t, err)
	}
	refused.Store(true)
	cfg := s.config()
	cfg.Avro, cfg.UnknownTopic = encoder, time.Second
	r := s.start(cfg)
	insert := func(key, subject string, n int) {
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $3, $4)`, s.topic, key, subject, []byte(`{"n": `+strconv.Itoa(n)+`}`))
	}
	insert("held", denied, 0)
	insert("held", fine, 1)
	insert("free", fine, 2)
	testkit.Wait(t, "the first row of the other subject", func() (bool, error) { return r.Status().Published == 1, nil })
	insert("held", denied, 3)
	insert("late", denied, 4)
	insert("free", fine, 5)
	testkit.Wait(t, "the rows of the other subject", func() (bool, error) { return r.Status().Published == 2, nil })
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
	require.NotZero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'retrying' AND last_error LIKE '%403%'"))
	refused.Store(false)
	keys := make(map[string]int)
	for _, record := range s.collect(6, s.topic) {
		keys[string(record.Key)]++
	}
	require.Equal(t, map[string]int{"held": 3, "late": 1, "free": 2}, keys)
}

// A registry may refuse many subjects, as after the loss of a right. The time for which they hold up other rows begins together.
func TestSubjectsThatTheRegistryRefusesHoldOthersUpTogether(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	asked := make(chan string, 10_000)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default:
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(door.Close)
	registry, err := schemas.NewRegistry(door.URL)
	require.NoError(t, err)
	cfg := s.config()
	cfg.UnknownTopic = time.Hour
	cfg.Avro, err = schemas.NewJSONEncoder(registry, schemas.RecordName)
	require.NoError(t, err)
	for _, subject := range []string{"One", "Two", "Three"} {
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $2, '{"n": 1}')`, s.topic, subject)
	}
	s.start(cfg)
	left := map[string]bool{"One": true, "Two": true, "Three": true}
	testkit.Wait(t, "each subject to be refused", func() (bool, error) {
		for len(asked) > 0 {
			path := <-asked
			for subject := range left {
				if strings.Contains(path, "/"+subject+"/") {
					delete(left, subject)
				}
			}
		}
		return len(left) == 0, nil
	})
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
}

// A subject without a schema is handled like a topic that does not exist: tried for a while, then parked.
func TestASubjectWithoutASchemaIsParkedInTheEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, encoder, _ := s.avro(schemas.TopicName)
	cfg := s.config()
	cfg.Avro, cfg.UnknownTopic = encoder, 100*time.Millisecond
	seen := publishFailures(&cfg)
	s.start(cfg)
	s.insert(s.topic, "k", `{"n": 1}`)
	for parked := false; !parked; {
		failure := <-seen
		require.ErrorIs(t, failure.Err, schemas.ErrNoSchema)
		parked = failure.Parked
	}
}

// A mapped table's payloads are encoded too, under EventRouter's headers without a content type.
func TestAMappedTableBecomesAvro(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	registry, encoder, _ := s.avro(schemas.TopicName)
	_, err := registry.Register(t.Context(), topic+"-value", offerAvro)
	require.NoError(t, err)
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.expand.json.payload": "true"}))
	cfg.Avro = encoder
	s.waitTable(s.start(cfg))
	s.insertEvent("order", "k", `{"n": 7}`)
	got := testkit.Consume(t, s.brokers, topic).WaitN(1)[0]
	require.JSONEq(t, `{"n":7,"note":null}`, decoded(t, registry, got.Value))
	require.Len(t, got.Headers, 1)

	_, byType, _ := s.avro(schemas.RecordName)
	cfg.Avro = byType
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "use TopicNameStrategy")
}

func TestAReplayEncodesAsTheRelayDoes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	registry, encoder, _ := s.avro(schemas.TopicName)
	_, err := registry.Register(t.Context(), s.topic+"-value", offerAvro)
	require.NoError(t, err)
	cfg := s.config()
	cfg.Source, cfg.Delivery, cfg.Avro = relay.WAL, relay.AtLeastOnce, encoder
	s.start(cfg)
	testkit.Wait(t, "a stream", func() (bool, error) { // until then the relay polls, and deletes rows
		return s.count("SELECT count(*) FROM troupe.relay_state WHERE source = 'wal' AND sweep IS NULL AND published IS NOT NULL") == 1, nil
	})
	s.insert(s.topic, "a", `{"n": 1}`)
	testkit.Consume(t, s.brokers, s.topic).WaitN(1)
	testkit.Wait(t, "the replay", func() (bool, error) {
		p, err := relay.Replay{From: 1}.Run(t.Context(), cfg, nil)
		return p.Published == 1, err
	})
	records := testkit.Consume(t, s.brokers, s.topic).WaitN(2)
	require.Equal(t, header(records[0], "content-type"), header(records[1], "content-type"))
	require.Equal(t, records[0].Value, records[1].Value)
}

// A service writes the types of its messages, and a type may be the subject at the registry. No type makes a request that the registry
// cannot answer, as one for another path or one that is too long for a server: the relay would take it for a registry that is unavailable.
func TestATypeThatCannotBeASubjectStopsNoOtherRow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	registry, encoder, _ := s.avro(schemas.RecordName)
	fine := s.flow + ".Thing"
	_, err := registry.Register(t.Context(), fine, offerAvro)
	require.NoError(t, err)
	cfg := s.config()
	cfg.Avro, cfg.UnknownTopic = encoder, time.Second
	for n, subject := range []string{
		".", "..", "/", "../..", "a/../../b", "?", "#", "%", "%2e%2e", "%2F", ":", ":.x:y", " ", "\n", "\x01", "é", strings.Repeat("t", 2_000_000),
	} {
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $3, '{"n": 1}')`, s.topic, strconv.Itoa(n), subject)
	}
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'fine', $2, '{"n": 2}')`, s.topic, fine)
	s.start(cfg)
	require.Equal(t, "fine", string(testkit.Consume(t, s.brokers, s.topic).WaitN(1)[0].Key))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE octet_length(last_error) > 10000"))
}

// A service that writes a new type each time, which the registry refuses, holds up other rows once and not for ever.
func TestNewTypesThatTheRegistryRefusesHoldOthersUpOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	registry, encoder, refused := s.avroWith(schemas.RecordName, http.StatusForbidden, ".Denied")
	fine := s.flow + ".Thing"
	_, err := registry.Register(t.Context(), fine, offerAvro)
	require.NoError(t, err)
	refused.Store(true)
	cfg := s.config()
	cfg.Avro, cfg.UnknownTopic = encoder, time.Second
	r := s.start(cfg)
	insert := func(key, subject string) {
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $3, '{"n": 1}')`, s.topic, key, subject)
	}
	insert("fine", fine)
	n := 0
	testkit.Wait(t, "the row among new types", func() (bool, error) {
		n++
		insert("denied"+strconv.Itoa(n), s.flow+".Denied"+strconv.Itoa(n))
		return r.Status().Published == 1, nil
	})
}
