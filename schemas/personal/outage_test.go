package personal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/personal"
	"github.com/troupe-go/troupe/schemas/personal/testdata/personpb"
	"github.com/troupe-go/troupe/schemas/protobuf"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// sometimesAway is a store of keys that refuses to make keys while it is away.
type sometimesAway struct {
	personal.Keys
	away    atomic.Bool
	refused atomic.Int32
}

func (s *sometimesAway) Make(ctx context.Context, subject string) (tink.DeterministicAEAD, error) {
	if s.away.Load() {
		s.refused.Add(1)
		return nil, errors.New("connection refused")
	}
	return s.Keys.Make(ctx, subject)
}

// TestAnAnswerWaitsForTheStoreOfKeys: an answer whose personal data cannot be encrypted now is tried again, and its command is no dead letter.
func TestAnAnswerWaitsForTheStoreOfKeys(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	store := &sometimesAway{Keys: s.table}
	store.away.Store(true)
	codec := s.codec(func(c *personal.Config) { c.Keys = store })
	p, err := participant.New(participant.Config{Pool: s.pool, Hop: topics.MustHop(testkit.Flow(t), "mail"), Local: true, Codec: codec, Log: testkit.Logger(t)})
	require.NoError(t, err)
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[mailSent]) (participant.Outcome, error) {
		return participant.Succeed(mailSent{Customer: "c-2", To: "b@example.com"}), nil
	})
	out, err := outbox.New(outbox.Config{Encoder: s.codec()})
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return out.Write(t.Context(), tx, outbox.Entry{Topic: p.Hop().Commands(), Key: "c-1", Body: mailSent{Customer: "c-1"}})
	}))
	run(t, p)
	testkit.Wait(t, "the first try", func() (bool, error) { return store.refused.Load() > 0, nil })
	store.away.Store(false)
	testkit.Wait(t, "an answer or a dead letter", func() (bool, error) {
		return len(list(t, s.pool, "SELECT type FROM troupe.outbox WHERE topic = $1", p.Hop().Events())) > 0 ||
			len(list(t, s.pool, "SELECT id::text FROM troupe.dead_letters")) > 0, nil
	})
	require.Equal(t, []string{"success"}, list(t, s.pool, "SELECT headers ->> 'ce_outcome' FROM troupe.outbox WHERE topic = $1", p.Hop().Events()))
	require.Empty(t, list(t, s.pool, "SELECT error FROM troupe.dead_letters"))
}

// TestAKeyThatCannotBeDecryptedIsNoOutage: the keys of other subjects are looked up as before. So it is where another service already makes
// keys with a newer key-encryption key.
func TestAKeyThatCannotBeDecryptedIsNoOutage(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	newer := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
	theirs := s.encode(s.codec(func(c *personal.Config) { c.Keys = s.open(newer) }), mailSent{Customer: "c-1", To: "a@example.com"})
	ours := s.encode(s.codec(), mailSent{Customer: "c-2", To: "b@example.com"})
	codec := s.codec()
	err := codec.Decode(theirs, new(mailSent))
	require.ErrorIs(t, err, personal.ErrUnreadableKey)
	require.NotErrorIs(t, err, envelope.ErrPayload)
	var got mailSent
	require.NoError(t, codec.Decode(ours, &got))
	require.Equal(t, "b@example.com", got.To)
	_, err = codec.Encode("t", mailSent{Customer: "c-1", To: "a@example.com"})
	require.ErrorIs(t, err, personal.ErrUnreadableKey)
	require.False(t, retry.IsPermanent(err))
	require.Positive(t, retry.NotBefore(err))
}

// TestASubjectThatNoErasureCanNameIsRefused.
func TestASubjectThatNoErasureCanNameIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, subject := range []string{"c\x00", "c-\xff"} {
		_, err := s.codec().Encode("t", mailSent{Customer: subject, To: "a@example.com"})
		require.ErrorContains(t, err, "not text in UTF-8")
		require.True(t, retry.IsPermanent(err))
	}
}

// TestGeneratedCodeWithoutTheMarksIsRefused: the marks of the .proto file are not in effect until the code is generated again.
func TestGeneratedCodeWithoutTheMarksIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, err := schemas.NewRegistry(s.registry.URL())
	require.NoError(t, err)
	text, err := fs.ReadFile(personpb.Files, "person.proto")
	require.NoError(t, err)
	for name, change := range map[string][2]string{
		"troupe.test.TripBooked.cents": {"int64 cents = 7;", `int64 cents = 7 [(troupe.personal) = "cents"];`},
		"troupe.test.Address.country":  {"string country = 2;", `string country = 2 [(troupe.personal) = "country"];`},
		"troupe.test.Address.street":   {`street = 1 [(troupe.personal) = "street"]`, `street = 1 [(troupe.personal) = "line"]`},
	} {
		newer := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		require.NotEqual(t, text, newer)
		files := fstest.MapFS{"person.proto": {Data: newer}}
		_, err = schemas.New(t.Context(), schemas.Config{Registry: r, Formats: []schemas.Format{protobuf.New(files, &personpb.TripBooked{})}})
		require.ErrorContains(t, err, "before "+name+" got its present option (troupe.personal): generate it again")
	}
}

// TestANewKeyIsOnDiskBeforeItIsUsed: a crash of the server must not lose a key with which a message was encrypted, whatever the role's
// synchronous_commit is. Nor must it undo the change to a new key-encryption key.
func TestANewKeyIsOnDiskBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec("CREATE TABLE waited (setting text)")
	s.exec("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO waited VALUES (current_setting('synchronous_commit')); RETURN new; END $$")
	s.exec("CREATE TRIGGER note BEFORE INSERT OR UPDATE ON troupe.subject_keys FOR EACH ROW EXECUTE FUNCTION note()")
	key, err := personal.ParseKeys(kekText)
	require.NoError(t, err)
	for _, setting := range []string{"off", "on", "remote_apply"} {
		config := s.pool.Config()
		config.ConnConfig.RuntimeParams["synchronous_commit"] = setting
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		table, err := personal.NewTable(t.Context(), pool, key)
		require.NoError(t, err)
		t.Cleanup(table.Close)
		_, err = table.Make(t.Context(), setting)
		require.NoError(t, err)
		_, err = table.Rewrap(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"local", "on", "remote_apply"}, list(t, s.pool, "SELECT DISTINCT setting FROM waited ORDER BY setting"))
	require.Equal(t, []string{"local", "local", "on", "on", "on"}, list(t, s.pool, "SELECT setting FROM waited ORDER BY ctid LIMIT 5"))
}

// TestADeadlineWaitsForTheStoreOfKeys: a message whose handler schedules one with personal data, which cannot be encrypted now, is tried again.
func TestADeadlineWaitsForTheStoreOfKeys(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	store := &sometimesAway{Keys: s.table}
	store.away.Store(true)
	codec := s.codec(func(c *personal.Config) { c.Keys = store })
	p, err := participant.New(participant.Config{Pool: s.pool, Hop: topics.MustHop(testkit.Flow(t), "mail"), Local: true, Codec: codec, Log: testkit.Logger(t)})
	require.NoError(t, err)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[mailSent]) (participant.Outcome, error) {
		err := p.Schedule(ctx, tx, participant.Deadline{Name: "remind", Body: mailSent{Customer: "c-2", To: "b@example.com"}})
		return participant.Succeed(mailSent{Customer: "c-1"}), err
	})
	s.exec("CREATE TABLE reminded (text text)")
	participant.OnDeadline(p, "remind", func(ctx context.Context, tx pgx.Tx, d participant.Due[mailSent]) error {
		_, err := tx.Exec(ctx, "INSERT INTO reminded VALUES ($1)", d.Body.To)
		return err
	})
	out, err := outbox.New(outbox.Config{Encoder: s.codec()})
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return out.Write(t.Context(), tx, outbox.Entry{Topic: p.Hop().Commands(), Key: "c-1", Body: mailSent{Customer: "c-1"}})
	}))
	run(t, p)
	testkit.Wait(t, "the first try", func() (bool, error) { return store.refused.Load() > 0, nil })
	store.away.Store(false)
	testkit.Wait(t, "the deadline or a dead letter", func() (bool, error) {
		return len(list(t, s.pool, "SELECT text FROM reminded")) > 0 || len(list(t, s.pool, "SELECT id::text FROM troupe.dead_letters")) > 0, nil
	})
	require.Empty(t, list(t, s.pool, "SELECT error FROM troupe.dead_letters"))
	require.Equal(t, []string{"b@example.com"}, list(t, s.pool, "SELECT text FROM reminded"))
}

// cutOnce is a store of keys of which one lookup fails, as when its connection is cut.
type cutOnce struct {
	personal.Keys
	lookups atomic.Int32
}

func (c *cutOnce) Find(ctx context.Context, subject string) (tink.DeterministicAEAD, error) {
	if c.lookups.Add(1) == 1 {
		return nil, errors.New("connection reset by peer")
	}
	return c.Keys.Find(ctx, subject)
}

// TestALookupThatFailsDoesNotUseUpTheAttempts: the next try waits until the store may be looked up in again. Tries within that second would
// all fail, and use up the attempts.
func TestALookupThatFailsDoesNotUseUpTheAttempts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	store := &cutOnce{Keys: s.table}
	p, err := participant.New(participant.Config{
		Pool: s.pool, Hop: topics.MustHop(testkit.Flow(t), "mail"), Local: true, Codec: s.codec(func(c *personal.Config) { c.Keys = store }),
		Retry: retry.Policy{Attempts: 3}, Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[mailSent]) (participant.Outcome, error) {
		return participant.Succeed(mailSent{Customer: c.Body.Customer}), nil
	})
	out, err := outbox.New(outbox.Config{Encoder: s.codec()})
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return out.Write(t.Context(), tx, outbox.Entry{Topic: p.Hop().Commands(), Key: "c-1", Body: mailSent{Customer: "c-1", To: "a@example.com"}})
	}))
	run(t, p)
	testkit.Wait(t, "an answer or a dead letter", func() (bool, error) {
		return len(list(t, s.pool, "SELECT type FROM troupe.outbox WHERE topic = $1", p.Hop().Events())) > 0, nil
	})
	require.Empty(t, list(t, s.pool, "SELECT error FROM troupe.dead_letters"))
	require.EqualValues(t, 2, store.lookups.Load())
}
