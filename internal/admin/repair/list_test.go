package repair_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/testkit"
)

// TestAStormIsAFewLines has a thousand dead letters of three causes, each error with values of its own.
func TestAStormIsAFewLines(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const storm = 1000
	s.exec(`
		INSERT INTO rules
		SELECT 'k' || n,
		       CASE WHEN n % 10 < 6 THEN format('account "%s" is closed since %s', md5(n::text), date '2026-01-01' + n)
		            WHEN n % 10 < 9 THEN format('ledger 10.0.%s.%s:5432: no answer after %s.5s', n % 200, n % 99, n)
		            ELSE format('no rate for ''%s'' (request %s)', chr(65 + n % 26), gen_random_uuid()) END,
		       true
		FROM generate_series(0, $1::int - 1) AS n`, storm)
	s.participant()
	commands := make([]envelope.Message, storm)
	for n := range commands {
		commands[n] = s.command(fmt.Sprintf("k%d", n), Charge{N: n})
	}
	s.send(commands...)
	s.waitAll(storm, openLetters)

	causes, next, err := s.desk.Causes(t.Context(), repair.Filter{}, repair.Page{})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, causes, 3)
	for i, want := range []struct {
		count int
		text  string
	}{{600, `account "*" is closed since *-*-*`}, {300, "ledger *: no answer after *s"}, {100, "no rate for '*' (request *)"}} {
		require.Equal(t, want.count, causes[i].Count)
		require.Equal(t, want.count, causes[i].Keys)
		require.Equal(t, want.text, causes[i].Fingerprint)
		require.Equal(t, []string{"permanent", s.hop.String(), s.hop.String() + "/Charge"},
			[]string{causes[i].Class, causes[i].Group, causes[i].Handler})
		require.Regexp(t, "^[0-9a-f]{12}$", causes[i].ID)
		require.False(t, causes[i].First.After(causes[i].Last))
		example, err := s.desk.Show(t.Context(), causes[i].Example)
		require.NoError(t, err)
		require.Equal(t, causes[i].Error, example.Error)
		n, err := s.desk.Count(t.Context(), repair.Filter{Cause: causes[i].ID})
		require.NoError(t, err)
		require.Equal(t, want.count, n)
	}

	// Page by page the result is the same, for causes and for dead letters.
	var again []repair.Cause
	for page := (repair.Page{Limit: 1}); ; page.After = next {
		var some []repair.Cause
		some, next, err = s.desk.Causes(t.Context(), repair.Filter{}, page)
		require.NoError(t, err)
		if again = append(again, some...); next == "" {
			break
		}
	}
	require.Equal(t, causes, again)
	var letters []repair.DeadLetter
	for page := (repair.Page{Limit: 7}); ; page.After = next {
		var some []repair.DeadLetter
		some, next, err = s.desk.List(t.Context(), repair.Filter{Cause: causes[2].ID}, page)
		require.NoError(t, err)
		if letters = append(letters, some...); next == "" {
			break
		}
	}
	require.Len(t, letters, 100)
	for i := range letters[1:] {
		require.False(t, letters[i+1].LastFailed.Before(letters[i].LastFailed), "in the order in which they failed")
	}

	// One redrive for one cause leaves the others unchanged.
	r, err := s.desk.Redrive(t.Context(), repair.Filter{Cause: causes[2].ID}, quickly)
	require.NoError(t, err)
	require.Equal(t, 100, r.Redriven)
	n, err := s.desk.Discard(t.Context(), repair.Filter{Cause: causes[0].ID}, ann)
	require.NoError(t, err)
	require.Equal(t, 600, n, "more than one transaction takes")
	require.Equal(t, 600, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'discard' AND reason = 'ticket 4711'"))
	require.Equal(t, 300, s.count(openLetters))
}

func TestFingerprintsLeaveOutWhatBelongsToOneMessage(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for text, want := range map[string]string{
		"as asked":                                       "as asked",
		"order 17 is gone":                               "order * is gone",
		"order o-17 of 1,000.50 is gone":                 "order o-* of * is gone",
		`no account "it's mine" here`:                    `no account "*" here`,
		"no column `x` in 'y' or 'z'":                    `no column "*" in '*' or '*'`,
		"can't read 'x', won't write":                    "can't read '*', won't write",
		"id 0191F6A8-0000-7000-8000-00000000000a, twice": "id *, twice",
		"at 0xc000123abc: defaced":                       "at *: defaced",
		"commit 3f2a91bc in deadbeef":                    "commit * in deadbeef",
		"dial 10.0.0.7:5432: refused":                    "dial *: refused",
		"took 1.5s at 2026-01-02T03:04:05Z":              "took *s at *-*-*T*Z",
		"":                                               "",
	} {
		var got string
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT troupe.error_fingerprint($1)", text).Scan(&got))
		require.Equal(t, want, got, text)
	}
}

func TestFiltersNarrow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("a", "no", true)
	s.fails("b", "no", false)
	s.participant()
	poison := s.command("c", Charge{})
	poison.Payload, poison.Type = []byte("{"), "Charge"
	unknown := s.command("d", Charge{})
	unknown.Type = "Unknown"
	s.send(s.command("a", Charge{}))
	s.waitCount(1, openLetters)
	var between time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&between))
	s.send(s.command("b", Charge{}), poison, unknown)
	s.waitCount(4, openLetters)
	all := s.letters()
	byKey := make(map[string]repair.DeadLetter)
	for _, l := range all {
		byKey[l.Key.String()] = l
	}
	_, err := s.desk.Discard(t.Context(), repair.Filter{Key: repair.Key("d")}, ann)
	require.NoError(t, err)

	for name, c := range map[string]struct {
		f    repair.Filter
		want string
	}{
		"nothing":  {repair.Filter{}, "a b c"},
		"ids":      {repair.Filter{IDs: []uuid.UUID{byKey["a"].ID, byKey["d"].ID}}, "a"},
		"no ids":   {repair.Filter{IDs: []uuid.UUID{}}, ""},
		"cause":    {repair.Filter{Cause: byKey["c"].Cause}, "c"},
		"group":    {repair.Filter{Group: s.hop.String()}, "a b c"},
		"a group":  {repair.Filter{Group: "other"}, ""},
		"topics":   {repair.Filter{Topics: []string{"x", s.hop.Commands()}}, "a b c"},
		"a topic":  {repair.Filter{Topics: []string{s.hop.Events()}}, ""},
		"class":    {repair.Filter{Class: "transient"}, "b"},
		"handler":  {repair.Filter{Handler: s.hop.String() + "/Charge"}, "a b c"},
		"type":     {repair.Filter{Type: "Unknown", Status: repair.AnyStatus}, "d"},
		"key":      {repair.Filter{Key: repair.Key("b")}, "b"},
		"since":    {repair.Filter{Since: between}, "b c"},
		"before":   {repair.Filter{Before: between}, "a"},
		"any":      {repair.Filter{Status: repair.AnyStatus}, "a b c d"},
		"the done": {repair.Filter{Status: repair.Discarded}, "d"},
		"more":     {repair.Filter{Class: "permanent", Since: between}, ""},
	} {
		letters, _, err := s.desk.List(t.Context(), c.f, repair.Page{})
		require.NoError(t, err, name)
		got := make(map[string]bool)
		for _, l := range letters {
			got[l.Key.String()] = true
		}
		keys := ""
		for _, k := range []string{"a", "b", "c", "d"} {
			if got[k] && keys != "" {
				keys += " "
			}
			if got[k] {
				keys += k
			}
		}
		require.Equal(t, c.want, keys, name)
	}
	require.NotEqual(t, byKey["a"].Cause, byKey["b"].Cause, "the same words of another class are another trouble")
	for _, f := range []repair.Filter{{Status: "gone"}, {Class: "bad"}, {Since: between, Before: between}, {IDs: make([]uuid.UUID, 10_001)}} {
		_, _, err := s.desk.List(t.Context(), f, repair.Page{})
		require.Error(t, err)
	}
	for _, p := range []repair.Page{{Limit: -1}, {Limit: 10_001}, {After: "x"}} {
		_, _, err := s.desk.List(t.Context(), repair.Filter{}, p)
		require.Error(t, err)
		_, _, err = s.desk.Causes(t.Context(), repair.Filter{}, p)
		require.Error(t, err)
		if p.After == "" {
			_, _, err = s.desk.Held(t.Context(), repair.HeldFilter{}, p)
			require.Error(t, err)
		}
	}
}

func TestKeysOfAnyBytesCanBeTyped(t *testing.T) {
	t.Parallel()
	for _, k := range []repair.Key{repair.Key("o-17"), {}, {0xff, 0}, repair.Key("Ключ"), repair.Key("0x6f2d31"), repair.Key("0xAB"), repair.Key("0x")} {
		require.Equal(t, k, repair.ParseKey(k.String()))
	}
	for _, k := range []repair.Key{nil, {}, repair.Key("o-17"), {0xff}} {
		b, err := json.Marshal(k)
		require.NoError(t, err)
		again := repair.Key("x")
		require.NoError(t, json.Unmarshal(b, &again))
		require.Equal(t, k, again)
	}
	require.Equal(t, "0x000a", repair.Key("\x00\n").String())
	require.NotEqual(t, repair.Key("o-1").String(), repair.ParseKey(repair.Key("0x6f2d31").String()).String(), "a sender of messages cannot choose the text of another key")
	require.Equal(t, repair.Key("0xyz"), repair.ParseKey("0xyz"))
}
