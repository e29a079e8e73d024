package personal_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/personal"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

var ann = admin.Actor{Name: "ann", Reason: "ticket 9"}

// list returns the rows of a query as texts.
func list(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// rowsWith returns all rows of Troupe's tables that contain a text, also as bytes.
func rowsWith(t *testing.T, pool *pgxpool.Pool, text string) (all []string) {
	t.Helper()
	for _, table := range list(t, pool, "SELECT relname::text FROM pg_class WHERE relnamespace = 'troupe'::regnamespace AND relkind IN ('r', 'p')") {
		for _, row := range list(t, pool, "SELECT t::text FROM troupe."+table+" AS t") {
			if strings.Contains(row, text) || strings.Contains(row, fmt.Sprintf("%x", text)) {
				all = append(all, table+": "+row)
			}
		}
	}
	return all
}

// run runs a participant until the end of the test.
func run(t *testing.T, p *participant.Participant) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
}

// TestADataSubjectIsForgottenInKafkaToo: a message that is in a topic, and in a dead letter, has no data of the person after an erasure. The
// service has only the documented rights on the table of keys.
func TestADataSubjectIsForgottenInKafkaToo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := grantstest.New(t, s.pool, grants.SubjectKeys)
	kek, err := personal.ParseKeys(kekText)
	require.NoError(t, err)
	table, err := personal.NewTable(t.Context(), role.Pool(), kek)
	require.NoError(t, err)
	t.Cleanup(table.Close)
	codec := s.codec(func(c *personal.Config) { c.Keys, c.CacheFor = table, 1 })

	hop := topics.MustHop(testkit.Flow(t), "mail")
	shop := topics.MustHop(hop.Flow(), "shop")
	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, kafka.Provision(t.Context(), client, kafka.Topic{Name: shop.Events(), Partitions: 2}))
	s.exec("CREATE TABLE seen (id text PRIMARY KEY, email text, forgotten text[])")
	p, err := participant.New(participant.Config{Pool: s.pool, Brokers: testkit.Kafka(t), Hop: hop, Codec: codec, Log: testkit.Logger(t)})
	require.NoError(t, err)
	participant.On(p, shop, func(ctx context.Context, tx pgx.Tx, e participant.Event[tripBooked]) error {
		if e.Body.Cents < 0 {
			return retry.Permanent(fmt.Errorf("%d cents", e.Body.Cents))
		}
		forgotten, err := codec.Forgotten(e.Message)
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO seen VALUES ($1, $2, $3)", e.Message.ID, e.Body.Email, forgotten)
		}
		return err
	})
	run(t, p)

	// As a service writes it, and a relay sends it.
	const secret = "ann@secret.example"
	out, err := outbox.New(outbox.Config{Encoder: codec})
	require.NoError(t, err)
	write := func(cents int64) (payload []byte) {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			return out.Write(t.Context(), tx, outbox.Entry{Topic: shop.Events(), Key: "o-1", Body: tripBooked{CustomerID: "c-1", Email: secret, Cents: cents}})
		}))
		require.NoError(t, s.pool.QueryRow(t.Context(), "DELETE FROM troupe.outbox RETURNING payload").Scan(&payload))
		return payload
	}
	send := func(payload []byte) (id string) {
		id = envelope.NewID()
		require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(envelope.Message{
			Topic: shop.Events(), Key: []byte("o-1"), Payload: payload, ID: id, Type: "shop.TripBooked", Source: "shop", ContentType: envelope.Avro,
		})).FirstErr())
		return id
	}
	seen := func(id string) string {
		var rows []string
		testkit.Wait(t, "the message to be handled", func() (bool, error) {
			rows = list(t, s.pool, "SELECT email || ' ' || coalesce(forgotten::text, '') FROM seen WHERE id = $1", id)
			return len(rows) == 1, nil
		})
		return rows[0]
	}
	booked, bad := write(5), write(-1)
	require.Equal(t, secret+" ", seen(send(booked)))
	send(bad)
	var letter uuid.UUID
	testkit.Wait(t, "the dead letter", func() (bool, error) {
		letters := list(t, s.pool, "SELECT id::text FROM troupe.dead_letters")
		if len(letters) == 1 {
			letter = uuid.MustParse(letters[0])
		}
		return len(letters) == 1, nil
	})
	require.Empty(t, rowsWith(t, s.pool, secret))

	desk, err := repair.New(repair.Config{Pool: s.pool, Codec: s.plain()})
	require.NoError(t, err)
	shown, err := desk.Show(t.Context(), letter)
	require.NoError(t, err)
	text := string(shown.Payload.JSON)
	require.Contains(t, text, personal.Prefix)
	edited := strings.Replace(text, `"cents":-1`, `"cents":7`, 1)
	require.NotEqual(t, text, edited)
	require.NoError(t, desk.Edit(t.Context(), letter, []byte(edited), ann))

	erase := erasure.Desk{Pool: s.pool}
	planned, err := erasure.Desk{Pool: grantstest.New(t, s.pool, grants.Viewer).Pool()}.Plan(t.Context(), "c-1")
	require.NoError(t, err)
	report, err := erase.Erase(t.Context(), "c-1", ann)
	require.NoError(t, err)
	require.Equal(t, planned, report)
	require.Equal(t, []erasure.Change{{Table: "subject_keys", Rows: 1, Effect: "blanked"}}, report.Changes)

	require.Equal(t, " {email}", seen(send(booked)))
	_, err = desk.Redrive(t.Context(), repair.Filter{IDs: []uuid.UUID{letter}}, repair.RedriveConfig{By: ann})
	require.NoError(t, err)
	var redriven []byte
	const last = "SELECT payload FROM troupe.outbox WHERE type = 'shop.TripBooked' ORDER BY position DESC LIMIT 1"
	require.NoError(t, s.pool.QueryRow(t.Context(), last).Scan(&redriven))
	require.Equal(t, " {email}", seen(send(redriven)))

	again, err := erase.Plan(t.Context(), "c-1")
	require.NoError(t, err)
	require.Empty(t, again.Changes)
}

type (
	lookUp struct {
		Customer string `avro:"customer"`
	}
	contactFound struct {
		Customer string `avro:"customer"`
		Email    string `avro:"email"`
	}
	sendMail struct {
		Customer string `avro:"customer"`
		To       string `avro:"to"`
		Greeting string `avro:"greeting"`
	}
)

const (
	lookUpAvro  = `{"type": "record", "name": "shop.LookUp", "fields": [{"name": "customer", "type": "string"}]}`
	contactAvro = `{"type": "record", "name": "shop.ContactFound", "fields": [
		{"name": "customer", "type": "string", "personal": "subject"}, {"name": "email", "type": "string", "personal": "email"}]}`
	sendAvro = `{"type": "record", "name": "shop.SendMail", "fields": [
		{"name": "customer", "type": "string", "personal": "subject"}, {"name": "to", "type": "string", "personal": "email"},
		{"name": "greeting", "type": "string", "personal": "greeting"}]}`
	welcome = `{"saga": "welcome", "version": 1, "key": "customer", "data": {"customer": "string", "email": "string", "greeting": "string"},
		"steps": [
			{"name": "contact", "command": {"hop": "crm", "type": "shop.LookUp", "input": {"customer": "data.customer"}},
			 "success": [{"event": "shop.ContactFound", "set": {"email": "event.email"}}], "failure": [{"event": "NoContact"}],
			 "timeout": "10m", "irreversible": "it only reads"},
			{"name": "mail", "needs": ["contact"],
			 "command": {"hop": "mail", "type": "shop.SendMail", "input": {"customer": "data.customer", "to": "data.email", "greeting": "data.greeting"}},
			 "success": [{"event": "shop.MailSent"}], "failure": [{"event": "NoMail"}],
			 "timeout": "10m", "irreversible": "a mail cannot be taken back"}]}`
)

// TestADefinitionInGoKnowsThePersonalFieldsOfItsTypes: the verifier asks it for them.
func TestADefinitionInGoKnowsThePersonalFieldsOfItsTypes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, err := schemas.NewRegistry(s.registry.URL())
	require.NoError(t, err)
	plain, err := schemas.New(t.Context(), schemas.Config{Registry: r, Types: []schemas.Type{
		schemas.Bind[lookUp](lookUpAvro), schemas.Bind[contactFound](contactAvro),
	}})
	require.NoError(t, err)
	codec, err := personal.New(personal.Config{Codec: plain, Keys: s.table})
	require.NoError(t, err)
	define := func(codec envelope.Decoder) *saga.Definition {
		d, err := saga.Define(saga.Spec{
			Saga: "welcome", Version: 1, Key: "customer", Data: map[string]saga.Type{"customer": saga.String},
			Start: []saga.Start{{Hop: "shop", Event: "Registered", Set: saga.Mapping{"customer": "event.customer"}}},
			Steps: []saga.Step{{
				Name: "contact", Irreversible: "it only reads",
				Command: saga.CommandOf[lookUp](codec, "crm", saga.Mapping{"customer": "data.customer"}),
				Success: []saga.Answer{saga.AnswerOf[contactFound](codec, saga.Answer{When: "event.email != 'a@b.example'"})},
			}},
		})
		require.NoError(t, err)
		return d
	}
	require.Equal(t, map[string]map[string]string{"shop.LookUp": {}, "shop.ContactFound": {"email": "email"}}, define(codec).Personal())
	findings := verify.Definition(define(codec), verify.Options{})
	require.True(t, slices.ContainsFunc(findings, func(f verify.Finding) bool { return f.Rule == "personal-field" }), "%v", findings)
	require.Nil(t, define(plain).Personal())
}

// TestASagaCopiesEncryptedValues from an answer to a command, and stores them encrypted, without a key.
func TestASagaCopiesEncryptedValues(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, err := schemas.NewRegistry(s.registry.URL())
	require.NoError(t, err)
	plain, err := schemas.New(t.Context(), schemas.Config{Registry: r, Types: []schemas.Type{
		schemas.Bind[lookUp](lookUpAvro), schemas.Bind[contactFound](contactAvro), schemas.Bind[sendMail](sendAvro), schemas.Bind[mailSent](mailAvro),
	}})
	require.NoError(t, err)
	codec, err := personal.New(personal.Config{Codec: plain, Keys: s.table})
	require.NoError(t, err)
	flow := testkit.Flow(t)
	service := func(name string) *participant.Participant {
		p, err := participant.New(participant.Config{Pool: s.pool, Hop: topics.MustHop(flow, name), Local: true, Codec: codec, Log: testkit.Logger(t)})
		require.NoError(t, err)
		return p
	}
	const secret = "ann@secret.example"
	crm, mail, order := service("crm"), service("mail"), service("order")
	participant.Handle(crm, func(_ context.Context, _ pgx.Tx, c participant.Command[lookUp]) (participant.Outcome, error) {
		return participant.Succeed(contactFound{c.Body.Customer, secret}), nil
	})
	s.exec("CREATE TABLE mails (text text)")
	participant.Handle(mail, func(ctx context.Context, tx pgx.Tx, c participant.Command[sendMail]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "INSERT INTO mails VALUES ($1)", c.Body.To+": "+c.Body.Greeting)
		return participant.Succeed(mailSent{Customer: c.Body.Customer, To: c.Body.To}), err
	})
	d, err := saga.Parse([]byte(welcome))
	require.NoError(t, err)
	sagas, err := coordinator.New(t.Context(), coordinator.Config{Participant: order, Pool: s.pool, Definitions: []*saga.Definition{d}, Schemas: plain, Log: testkit.Logger(t)})
	require.NoError(t, err)
	for _, p := range []*participant.Participant{crm, mail, order} {
		run(t, p)
	}
	greeting, err := codec.Encrypt("c-1", "greeting", "Dear Ann secret")
	require.NoError(t, err)
	_, err = sagas.Submit(t.Context(), "welcome", map[string]any{"customer": "c-1", "greeting": greeting}, nil)
	require.NoError(t, err)
	greeting, err = codec.Encrypt("c-1", "greeting", "Dear Ann secret")
	require.NoError(t, err)
	again, err := sagas.Submit(t.Context(), "welcome", map[string]any{"customer": "c-1", "greeting": greeting}, nil)
	require.NoError(t, err)
	require.False(t, again.OtherData)
	ended, err := sagas.Wait(t.Context(), "welcome", "c-1")
	require.NoError(t, err)
	require.Equal(t, saga.Completed, ended.Status, ended.Reason)
	require.Equal(t, []string{secret + ": Dear Ann secret"}, list(t, s.pool, "SELECT text FROM mails"))
	require.Empty(t, rowsWith(t, s.pool, secret))
	require.Empty(t, rowsWith(t, s.pool, "Ann secret"))
	require.NotEmpty(t, rowsWith(t, s.pool, personal.Prefix))
	_, err = codec.Encrypt("c-1", "subject", "x")
	require.ErrorContains(t, err, "no kind")
}

// TestARepeatedCommandWithPersonalDataIsAnsweredAsBefore: its payload has the same bytes each time, so it is the same request.
func TestARepeatedCommandWithPersonalDataIsAnsweredAsBefore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	codec := s.codec()
	s.exec("CREATE TABLE mails (text text)")
	p, err := participant.New(participant.Config{Pool: s.pool, Hop: topics.MustHop(testkit.Flow(t), "mail"), Local: true, Codec: codec, Log: testkit.Logger(t)})
	require.NoError(t, err)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[mailSent]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "INSERT INTO mails VALUES ($1)", c.Body.To)
		return participant.Succeed(c.Body), err
	})
	run(t, p)
	out, err := outbox.New(outbox.Config{Encoder: codec})
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			return out.Write(t.Context(), tx, outbox.Entry{
				Topic: p.Hop().Commands(), Key: "c-1", Body: mailSent{Customer: "c-1", To: "a@example.com"}, IdempotencyKey: "m-1",
			})
		}))
	}
	testkit.Wait(t, "two answers", func() (bool, error) {
		var n int
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox WHERE topic = $1", p.Hop().Events()).Scan(&n)
		return n == 2, err
	})
	require.Equal(t, []string{"success", "success"}, list(t, s.pool, "SELECT headers ->> 'ce_outcome' FROM troupe.outbox WHERE topic = $1", p.Hop().Events()))
	require.Equal(t, []string{"a@example.com"}, list(t, s.pool, "SELECT text FROM mails"))
}
