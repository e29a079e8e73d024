package sagadesk_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) {
	short.Only(
		"TestQuestionsAreListed", "TestPagesAreTheWholeInOrder",
	)
	testkit.Main(m)
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func order(t testing.TB) *saga.Definition {
	t.Helper()
	text, err := os.ReadFile("../../../saga/testdata/order.saga.json")
	require.NoError(t, err)
	d, err := saga.Parse(text)
	require.NoError(t, err)
	return d
}

var anOrder = map[string]any{"order_id": "o-1", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1}
