package participant_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
)

// All due deadlines of a group are fired by one statement, which fails if the outbox does not take one of them. Roles of other services,
// and of operators of sagas, may insert deadlines of any group.
func TestNoRoleStopsTheDeadlinesOfAGroupByOneOfThem(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	const insert = `INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers, payload)
		VALUES ($1, $2, $3, gen_random_uuid(), now() - interval '1 hour', 'k', %s, %s, '{}')`
	for _, part := range []grants.Part{grants.SagaOperator, grants.Participant} {
		pool := grantstest.New(t, s.pool, part).Pool()
		for n, columns := range [][]any{{"''", "'{}'"}, {"'Overdue'", "'[]'"}, {"'Overdue'", "'null'"}, {"'Overdue'", "'7'"}} {
			_, err := pool.Exec(t.Context(), fmt.Sprintf(insert, columns...), s.hop.String(), fmt.Sprint(part, n), overdueName)
			require.ErrorContains(t, err, "check constraint", "%s", columns)
		}
	}
	p := s.expecting()
	s.start(p)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: "s", Key: "k", Body: Overdue{N: 1}}))
	s.fired(1)
}

// An operator's role may insert the rows of a rebuild. Values there that a member cannot read would keep it from taking the partition.
func TestAnOperatorsRoleStopsNoPartitionByARebuild(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	operator := grantstest.New(t, s.pool, grants.Operator).Pool()
	const insert = `WITH r AS (
			INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ($1, 1, %[1]s, 'epoch', false) RETURNING id)
		INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset)
		SELECT id, $2, 0, $3, %[2]s, 0 FROM r`
	ids, err := kafka.TopicIDs(t.Context(), s.client, s.bank.Events())
	require.NoError(t, err)
	for _, handlers := range []string{"ARRAY[NULL]::text[]", "ARRAY['a', NULL]", "ARRAY[ARRAY['a'], ARRAY['b']]", "'{}'"} {
		for _, columns := range [][]any{{handlers, "ARRAY['a']"}, {"ARRAY['a']", handlers}} {
			_, err := operator.Exec(t.Context(), fmt.Sprintf(insert, columns...), s.hop.String(), s.bank.Events(), kafka.TopicID(s.bank.Events(), ids[s.bank.Events()]))
			require.ErrorContains(t, err, "check constraint", "%s", columns)
		}
	}
	s.start(s.participant(onePartition))
	s.send(s.event("k", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done")
}
