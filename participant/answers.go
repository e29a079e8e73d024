package participant

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
)

// A command that comes again under another id, with the idempotency key it had, is a caller who did not get his answer:
// he gets the one that was given, and nothing is done again.

var (
	//go:embed sql/find_answers.sql
	findAnswers string
	//go:embed sql/insert_answer.sql
	insertAnswer string
)

type answerKey struct{ typ, key string }

type storedAnswer struct {
	outcome     envelope.Outcome
	typ         string
	contentType string
	payload     []byte
}

type answers map[answerKey]storedAnswer

func (m *message) answerKey() answerKey {
	return answerKey{indexable(m.Type), indexable(m.IdempotencyKey)}
}

// findAnswers queues the question for what was answered before, if any of the messages could have been.
func (p *Participant) findAnswers(b *pgx.Batch, ms []*message) (asked bool) {
	var types, keys []string
	for _, m := range ms {
		if m.handler != nil && m.handler.answers && m.IdempotencyKey != "" {
			k := m.answerKey()
			types, keys = append(types, k.typ), append(keys, k.key)
		}
	}
	if len(keys) > 0 {
		b.Queue(findAnswers, p.cfg.Group, types, keys)
	}
	return len(keys) > 0
}

func readAnswers(results pgx.BatchResults) (answers, error) {
	rows, _ := results.Query()
	var all answers
	var k answerKey
	var s storedAnswer
	_, err := pgx.ForEachRow(rows, []any{&k.typ, &k.key, &s.outcome, &s.typ, &s.contentType, &s.payload}, func() error {
		if all == nil {
			all = make(answers)
		}
		all[k] = s
		s.payload = nil
		return nil
	})
	return all, err
}

// storeAnswer keeps an answer beside its event. Two commands with one key at once: the second fails, runs again, and
// finds the first one's.
func (p *Participant) storeAnswer(tx *handlerTx, m *message, e outbox.Entry) {
	if m.IdempotencyKey == "" {
		return
	}
	k := m.answerKey()
	tx.stored.Queue(insertAnswer, p.cfg.Group, k.typ, k.key, string(e.Outcome), e.Type, e.ContentType, e.Payload)
}

// repeatAnswer answers m with what the same command was answered under another id.
func (p *Participant) repeatAnswer(ctx context.Context, tx *handlerTx, m *message, s storedAnswer) error {
	e := p.reply(m)
	e.Outcome, e.Type, e.ContentType, e.Payload = s.outcome, s.typ, s.contentType, s.payload
	if err := p.out.Render(ctx, &tx.events, e); err != nil {
		return classified{Permanent, err}
	}
	return nil
}
