package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// The value of a column without a rule of its own is Postgres's text, whether the row is read from the table or from the log, and whatever
// the settings of the relay's role are.
func TestAValueOfAMappedTableIsPostgresText(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.eventTopic("order")
	texts := []string{
		"int4[]", "{{1,2},{3,4}}", "int4[]", "[0:1]={1,2}", "text[]", `{a,"b,c",NULL,""}`, "numeric", "0.00", "numeric", "5.00", "numeric[]", "{0.0,1.50}",
		"float8", "1e+21", "float8", "1e-07", "float8", "Infinity", "float8", "0.1", "float4", "3.4e+38", "interval", "1 year 2 mons 3 days",
		"interval", "-1 days +02:03:04.5", "int4range", "[1,5)", "numrange", "[0.00,1.50]", "tstzrange", `["2020-01-01 00:00:00+00","2020-01-02 00:00:00+00")`,
		"timetz", "12:00:00+02", "pg_lsn", "0/1", "point", "(1,2)", "inet", "10.0.0.1", "inet[]", "{10.0.0.1,10.0.0.0/8}", "jsonpath", `$."a"`, "jsonb[]", `{"{\"a\": 1}"}`,
		"mood[]", "{glad,sad}", "pair", `(1,"a b")`, "tsvector", "'a' 'b'", "timestamptz[]", `{"2020-01-01 00:00:00+00"}`, "bytea[]", `{"\\x01"}`,
	}
	s.exec("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TYPE pair AS (a int, b text)")
	var columns, placed, values, want []string
	for n := 0; n < len(texts); n += 2 {
		name := "c" + string(rune('a'+n/2/26)) + string(rune('a'+n/2%26))
		columns = append(columns, name+" "+texts[n])
		placed = append(placed, name+":header")
		values = append(values, "'"+strings.ReplaceAll(texts[n+1], "'", "''")+"'")
		want = append(want, name+"="+texts[n+1])
	}
	s.exec(debeziumTable + "; ALTER TABLE public.outbox ADD " + strings.Join(columns, ", ADD "))
	for name, value := range map[string]string{
		"datestyle": "German, DMY", "intervalstyle": "iso_8601", "extra_float_digits": "-15", "bytea_output": "escape", "timezone": "Asia/Kathmandu",
	} {
		s.exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET " + name + " = ''" + value + "''', current_database()); END $$")
	}
	insert := func() {
		s.exec("INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'k', 'T', '1', " + strings.Join(values, ", ") + ")")
	}
	insert()
	s.waitTable(s.start(s.mapped("public.outbox", s.routed(map[string]string{"table.fields.additional.placement": strings.Join(placed, ",")}))))
	insert()
	for _, record := range testkit.Consume(t, s.brokers, topic).WaitN(2) {
		require.Equal(t, want, headersOf(record)[1:])
	}
}

// A column gets a type of which only the server has the text, while the relay streams the rows in the binary format. One transaction has rows of
// both types.
func TestAColumnOfATypeThatChangesWhileTheRelayStreamsIsPostgresText(t *testing.T) {
	t.Parallel()
	for _, delivery := range []relay.Delivery{relay.AtLeastOnce, relay.ExactlyOnce} {
		t.Run(string(delivery), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			topic := s.eventTopic("order")
			s.exec(debeziumTable + "; ALTER TABLE public.outbox ADD amount int, ADD pairs text")
			cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.fields.additional.placement": "amount:header,pairs:header"}))
			cfg.Delivery = delivery
			s.waitTable(s.start(cfg))
			insert := func(amount, pairs string) string {
				return "; INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'k', 'T', '1', " + amount + ", '" + pairs + "')"
			}
			s.exec("BEGIN" + insert("1", "none") + "; ALTER TABLE public.outbox ALTER amount TYPE numeric, ALTER pairs TYPE int[] USING NULL" +
				insert("0.00", "{{1,2},{3,4}}") + "; COMMIT")
			got := make(map[string]int)
			testkit.Wait(t, "both rows", func() (bool, error) {
				clear(got)
				for _, record := range s.committed(topic) {
					got[strings.Join(headersOf(record)[1:], " ")]++
				}
				return len(got) > 1, nil
			})
			require.Len(t, got, 2)
			require.NotZero(t, got["amount=1 pairs=none"])
			require.Equal(t, 1, got["amount=0.00 pairs={{1,2},{3,4}}"])
			if delivery == relay.ExactlyOnce {
				require.Equal(t, 1, got["amount=1 pairs=none"])
			}
		})
	}
}
