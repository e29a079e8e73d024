package services_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/examples/services"
	"github.com/troupe-go/troupe/examples/services/bunstore"
	"github.com/troupe-go/troupe/examples/services/entstore"
	"github.com/troupe-go/troupe/examples/services/gormstore"
	"github.com/troupe-go/troupe/examples/services/sqlcpgx"
	"github.com/troupe-go/troupe/examples/services/sqlcsql"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// payments holds the service with each library.
var payments = map[string]func(t *testing.T, s *testkit.Stage, p *participant.Participant){
	"sqlc, pgx": func(_ *testing.T, s *testkit.Stage, p *participant.Participant) {
		sqlcpgx.Register(p, receipts(s))
	},
	"sqlc, database/sql": func(_ *testing.T, s *testkit.Stage, p *participant.Participant) {
		sqlcsql.Register(p, receipts(s))
	},
	"GORM": func(t *testing.T, s *testkit.Stage, p *participant.Participant) {
		db, err := gorm.Open(postgres.New(postgres.Config{Conn: own(t, s)}), &gorm.Config{})
		require.NoError(t, err)
		gormstore.Register(p, db, receipts(s))
	},
	"bun": func(t *testing.T, s *testkit.Stage, p *participant.Participant) {
		bunstore.Register(p, bun.NewDB(own(t, s), pgdialect.New()), receipts(s))
	},
	"ent": func(_ *testing.T, s *testkit.Stage, p *participant.Participant) {
		entstore.Register(p, receipts(s))
	},
}

// own returns the service's own *sql.DB, which is not the connection of its handlers.
func own(t *testing.T, s *testkit.Stage) *sql.DB {
	t.Helper()
	db := stdlib.OpenDB(*s.Pool.Config().ConnConfig)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func receipts(s *testkit.Stage) string { return s.Hop.Flow() + ".mail.commands" }

func service(t *testing.T, register func(*testing.T, *testkit.Stage, *participant.Participant)) testkit.StageConfig {
	return testkit.StageConfig{
		SQL:      services.Schema + "INSERT INTO limits VALUES ('anna', 1000)",
		Handlers: func(s *testkit.Stage, p *participant.Participant) { register(t, s, p) },
	}
}

func TestAPaymentIsChargedOnceOrRefused(t *testing.T) {
	t.Parallel()
	for name, register := range payments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.NewStage(t, service(t, register))
			first := s.Command("o-1", services.ChargePayment{OrderID: "o-1", Customer: "anna", Cents: 700})
			again := s.Command("o-1", services.ChargePayment{OrderID: "o-1", Customer: "anna", Cents: 700}) // another message
			over := s.Command("o-2", services.ChargePayment{OrderID: "o-2", Customer: "anna", Cents: 1001}) // whichever order is first
			stranger := s.Command("o-3", services.ChargePayment{OrderID: "o-3", Customer: "bert", Cents: 1})
			wrong := s.Command("o-4", services.ChargePayment{OrderID: "o-4", Customer: "anna", Cents: -1})
			s.Send(first, first, again, over, stranger, wrong)

			require.Equal(t, "o-1", testkit.Await[services.PaymentCharged](s, first).Body.OrderID)
			testkit.Await[services.PaymentRefused](s, over)
			testkit.Await[services.PaymentRefused](s, stranger)
			dead := s.AwaitDeadLetter(wrong)
			require.Equal(t, participant.Permanent, dead.Class)
			require.True(t, strings.Contains(dead.Error, "payments_cents_check"), dead.Error)
			s.Settle()
			var left, rows int
			require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT (SELECT cents_left FROM limits), (SELECT count(*) FROM payments)").Scan(&left, &rows))
			require.Equal(t, 300, left)
			require.Equal(t, 1, rows)
			require.Len(t, s.Entries(receipts(s)), 1)
			require.Equal(t, first.ID, s.Entries(receipts(s))[0].CausationID)
		})
	}
}

func TestAPaymentIsChargedOnceWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, register := range payments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.CrashAtEveryStep(t, service(t, register),
				func(s *testkit.Stage) envelope.Message {
					return s.Command("o-1", services.ChargePayment{OrderID: "o-1", Customer: "anna", Cents: 700})
				},
				testkit.Query("SELECT cents_left, order_id, cents FROM limits JOIN payments USING (customer)"),
			)
		})
	}
}
