package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"

	"github.com/troupe-go/troupe/examples/library/messages"
)

// The tests of the handlers run on a Postgres, a schema registry and a broker that they start themselves, without Docker.
func TestMain(m *testing.M) { testkit.Main(m) }

const stock = "; INSERT INTO copies VALUES ('978-1', 2), ('978-2', 0)"

func loans(t *testing.T) testkit.StageConfig {
	codec, err := newCodec(t.Context(), testkit.Registry(t))
	require.NoError(t, err)
	return testkit.StageConfig{
		SQL:         tables + stock,
		Handlers:    func(_ *testkit.Stage, p *participant.Participant) { lends(p) },
		Participant: participant.Config{Codec: codec},
	}
}

func TestABookIsLentOrRefused(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, loans(t))
	one := s.Command("l-1", &messages.LendBook{LoanId: "l-1", Reader: "ann", Isbn: "978-1"})
	gone := s.Command("l-2", &messages.LendBook{LoanId: "l-2", Reader: "bob", Isbn: "978-2"})
	s.Send(one, gone, one) // the first one twice

	require.EqualValues(t, 1, testkit.Await[*messages.BookLent](s, one).Body.GetLeft())
	require.Equal(t, "no free copy of 978-2", testkit.Await[*messages.LoanRefused](s, gone).Body.GetReason())
	s.Settle()
	require.Len(t, s.Entries(s.Hop.Events()), 2, "the duplicate is not answered")
}

func TestALoanWithoutAReaderIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, loans(t))
	none := s.Command("l-1", &messages.LendBook{LoanId: "l-1", Isbn: "978-1"})
	s.Send(none)
	require.Equal(t, participant.Permanent, s.AwaitDeadLetter(none).Class)
}

func TestABookIsLentOnceWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	testkit.CrashAtEveryStep(t, loans(t),
		func(s *testkit.Stage) envelope.Message {
			return s.Command("l-1", &messages.LendBook{LoanId: "l-1", Reader: "ann", Isbn: "978-1"})
		},
		testkit.Query("SELECT isbn, free, loan_id FROM copies LEFT JOIN loans USING (isbn)"),
	)
}
