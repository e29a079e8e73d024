package stage

import (
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

// loans is a definition with a step that an operator answers.
const loans = `{
  "saga": "loan", "version": 1, "key": "id", "data": {"id": "string", "cents": "int", "name": "string"},
  "steps": [
    {
      "name": "approval", "timeout": "24h",
      "success": [{
        "event": "LoanApproved", "hop": "desk", "set": {"cents": "event.cents", "name": "has(event.name) ? event.name : ''"},
        "form": {"title": "Approve the loan", "fields": [
          {"name": "cents", "type": "int", "min": 1, "max": 250000, "title": "Cents a month"},
          {"name": "name", "type": "string", "optional": true, "personal": true}
        ]}
      }],
      "failure": [{
        "event": "LoanDeclined", "hop": "desk", "reason": "event.why",
        "form": {"fields": [{"name": "why", "type": "string", "oneOf": ["income", "age"]}, {"name": "sure", "type": "bool"}, {"name": "rate", "type": "double", "optional": true}]}
      }]
    },
    {
      "name": "pay", "needs": ["approval"], "timeout": "1h",
      "command": {"hop": "bank", "type": "PayLoan", "input": {"cents": "data.cents", "name": "data.name"}},
      "success": [{"event": "LoanPaid"}], "failure": [{"event": "LoanNotPaid"}]
    }
  ]
}`

// Loan starts a loan, which waits for an operator, and returns its id. No coordinator runs it.
func (s *Stage) Loan(key string) (id string) {
	s.t.Helper()
	d, err := saga.Parse([]byte(loans))
	require.NoError(s.t, err)
	_, err = s.Pool.Exec(s.t.Context(), "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, 'loan', 1, $2) ON CONFLICT DO NOTHING", d.Hash(), string(d.JSON()))
	require.NoError(s.t, err)
	desk, err := sagadesk.New(sagadesk.Config{Pool: s.Pool})
	require.NoError(s.t, err)
	started, err := desk.Start(s.t.Context(), sagadesk.StartRequest{
		Definition: d, Fields: map[string]any{"id": key}, Actor: "ann", Reason: "a test", Hop: s.Flow + ".loan",
	})
	require.NoError(s.t, err)
	return started.ID
}
