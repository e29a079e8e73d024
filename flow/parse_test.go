package flow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
)

func TestInvalidDeclarationsAreReportedWithPlaceAndRemedy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		was, is string // parts of everything
		want    string
	}{
		"an unknown field":        {`"starts"`, `"start"`, "start: no such field: want one of hop, starts, reactions, joins, expectations"},
		"a field in capitals":     {`"on"`, `"On"`, "reactions[0].On: no such field: want one of on, success, failure, undoes, irreversible, attempts"},
		"a null":                  {`"attempts":3`, `"attempts":null`, "reactions[0].attempts: null says nothing"},
		"another kind":            {`"attempts":3`, `"attempts":"3"`, "reactions[0].attempts: a text, want a whole number"},
		"a fraction":              {`"attempts":3`, `"attempts":2.5`, "2.5, want a whole number"},
		"a number beyond int":     {`"attempts":3`, `"attempts":1e30`, "want a whole number"},
		"too many attempts":       {`"attempts":3`, `"attempts":1001`, "want 1 to 1000"},
		"a hop":                   {`"hop":"order.payment"`, `"hop":"payment"`, `hop: hop "payment": not a topic name of troupe: want flow.hop`},
		"a topic":                 {`"order.shop.events","type":"Told"`, `"order_shop","type":"Told"`, "reactions[2].on.topic: topic"},
		"a topic of dead letters": {`"order.shop.events","type":"Told"`, `"order.shop.dlq","type":"Told"`, "want order.shop.events or order.shop.commands"},
		"another's commands":      {`"order.shop.events","type":"Told"`, `"order.shop.commands","type":"Told"`, "the commands of order.shop are for it alone"},
		"another's events":        {`"order.payment.events","type":"Paid"`, `"order.shop.events","type":"Paid"`, "only order.shop sends its events; want order.payment.events"},
		"a type with a space":     {`"type":"Told"`, `"type":"T old"`, "reactions[2].on.type: "},
		"a handler twice":         {`"type":"Told"`, `"type":"Placed"`, "reactions[2].on: reactions[0] handles Placed already"},
		"undoing another's":       {`"undoes":["Paid"]`, `"undoes":["Shipped"]`, `reactions[1].undoes[0]: "Shipped" is no success event of order.payment`},
		"undoing twice":           {`"undoes":["Paid"]`, `"undoes":["Paid","Paid"]`, "is listed twice"},
		"undoing irreversibly":    {`"undoes":["Paid"]`, `"undoes":["Paid"],"irreversible":"x"`, "reactions[1].irreversible: "},
		"last at the consumer":    {`"type":"Told"`, `"type":"Told","last":true`, "only the sender of a message"},
		"a duration":              {`"1h30m"`, `"90"`, `joins[0].within: "90", want a duration such as 30s`},
		"no time at all":          {`"30s"`, `"0s"`, "expectations[0].within: "},
		"more than a year":        {`"30s"`, `"9000h"`, "expectations[0].within: "},
		"nothing to expire":       {`"within":"1h30m",`, ``, "joins[0].expired: nothing expires without within"},
		"awaited and broken":      {`"type":"NoB"`, `"type":"B"`, "joins[0].broken[0]: B is also awaited"},
		"awaited twice":           {`"type":"B"`, `"type":"A"`, "joins[0].await[1]: A is listed twice"},
		"expected of itself":      {`"type":"Thanked"`, `"type":"Placed"`, "expectations[0].expect: the expectation begins with Placed"},
		"a name":                  {`"name":"both"`, `"name":"Both"`, `joins[0].name: "Both", want`},
		"late is not its event":   {`"ThankedLate"}]`, `"ThankedLate"},{"topic":"order.shop.events","type":"X"}]`, "expectations[0].late[1].topic"},
		"something behind it":     {`"ThankedLate"}]}]}`, `"ThankedLate"}]}]}{}`, "something follows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := json.Marshal(everything())
			require.NoError(t, err)
			require.Contains(t, string(text), test.was)
			_, err = flow.Parse([]byte(strings.Replace(string(text), test.was, test.is, 1)))
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "line 1: ")
		})
	}
}

func TestThereAreLimits(t *testing.T) {
	t.Parallel()
	of := func(change func(*flow.Declaration)) error {
		s := everything()
		change(&s)
		return s.Check()
	}
	require.NoError(t, of(func(*flow.Declaration) {}))
	event := func(i int) flow.Message {
		return flow.Message{Topic: "order.payment.events", Type: fmt.Sprintf("T%d", i)}
	}
	var many []flow.Message
	for i := range 300 {
		many = append(many, event(i))
	}
	for want, change := range map[string]func(*flow.Declaration){
		"starts: 300 of them, want at most 256":               func(s *flow.Declaration) { s.Starts = many },
		"reactions[0].success: 300 of them, want at most 32":  func(s *flow.Declaration) { s.Reactions[0].Success = many },
		"joins[0].await: 300 of them, want at most 64":        func(s *flow.Declaration) { s.Joins[0].Await = many },
		"expectations[0].expect: 300 of them, want at most":   func(s *flow.Declaration) { s.Expectations[0].Expect = many },
		"reactions[2].irreversible: 1001 bytes, want at most": func(s *flow.Declaration) { s.Reactions[2].Irreversible = strings.Repeat("x", 1001) },
		"joins[1].name: \"both\" is taken":                    func(s *flow.Declaration) { s.Joins = append(s.Joins, s.Joins[0]) },
		"it takes no part in the flow":                        func(s *flow.Declaration) { *s = flow.Declaration{Hop: s.Hop} },
		"joins[0].await: it waits for nothing":                func(s *flow.Declaration) { s.Joins[0].Await = nil },
		"joins[0].success: the join sends nothing":            func(s *flow.Declaration) { s.Joins[0].Success = nil },
	} {
		require.ErrorContains(t, of(change), want)
	}
	_, err := flow.Parse(make([]byte, 1<<20+1))
	require.ErrorContains(t, err, "more than the 1048576 bytes")
	_, err = flow.Parse([]byte(strings.Repeat("[", 10000)))
	require.ErrorContains(t, err, "nested too deeply")
}

func TestLoadNamesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "reactions.json")
	_, err := flow.Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("{\n  \"hop\": 7\n}\n"), 0o600))
	_, err = flow.Load(path)
	require.EqualError(t, err, path+": line 2: hop: 7, want a text")
	require.NoError(t, os.WriteFile(path, make([]byte, 2<<20), 0o600))
	_, err = flow.Load(path)
	require.ErrorContains(t, err, path+": more than the 1048576 bytes")
}

func FuzzParse(f *testing.F) {
	text, err := json.Marshal(everything())
	require.NoError(f, err)
	f.Add(text)
	schema := compiled(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := flow.Parse(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, s.Check())
		require.NoError(t, refusedBySchema(t, schema, text))
	})
}

func ExampleParse() {
	_, err := flow.Parse([]byte(`{
  "hop": "order.shipping",
  "reactions": [{
    "on": {"topic": "order.inventory.events", "type": "StockReserved"},
    "sucess": [{"topic": "order.shipping.events", "type": "OrderShipped"}]
  }]
}`))
	fmt.Println(err)
	// Output:
	// line 5: reactions[0].sucess: no such field: want one of on, success, failure, undoes, irreversible, attempts
}

func ExampleLoad() {
	s, err := flow.Load("../internal/demo/shipping/reactions.json")
	fmt.Println(s.Hop, s.Reactions[0].On.Type, err)
	// Output:
	// order.shipping troupe.order.StockReserved <nil>
}
