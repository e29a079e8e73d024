package expr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/expr"
)

// TestUnknownNamesTheFieldsThatAShapeDoesNotHave wherever an expression names them.
func TestUnknownNamesTheFieldsThatAShapeDoesNotHave(t *testing.T) {
	t.Parallel()
	address := &expr.Shape{Fields: map[string]*expr.Shape{"zip": {Type: expr.String}}}
	address.Fields["next"] = address // it may contain itself
	event := &expr.Shape{Fields: map[string]*expr.Shape{
		"id": {Type: expr.String}, "any": {}, "unknown": nil, "address": address, "lines": {Elements: address}, "by_name": {Values: address},
	}}
	env, err := expr.NewEnv(map[string]expr.Fields{"event": nil, "data": {"n": expr.Int, "list": expr.Any}})
	require.NoError(t, err)
	for text, want := range map[string][]string{
		"event.id":                                           nil,
		"event.ID":                                           {"event ID"},
		"has(event.ID)":                                      {"event ID"},
		"event.ID == null ? 1 : 2":                           {"event ID"},
		"event['ID']":                                        {"event ID"},
		"event.address.zip":                                  nil,
		"event.address.zipcode":                              {"event.address zipcode"},
		"event.address.next.next.zipp":                       {"event.address.next.next zipp"},
		"event.any.thing.at.all":                             nil,
		"event.unknown.thing":                                nil,
		"event.lines[0].zip":                                 nil,
		"event.lines[data.n].zap":                            {"event.lines[] zap"},
		"event.lines[event.nth].zip":                         {"event nth"},
		"event.by_name['ann'].zip":                           nil,
		"event.by_name.ann.zap":                              {"event.by_name.ann zap"},
		"event.by_name[event.id].zap":                        {"event.by_name[*] zap"},
		"event.lines.map(l, l.zap)":                          {"event.lines[] zap"},
		"event.lines.all(l, l.zip!='')":                      nil,
		"event.lines.filter(l, l.zap == 'a').map(l, l.zip)":  {"event.lines[] zap"},
		"event.lines.map(l, l.next.zap)":                     {"event.lines[].next zap"},
		"event.by_name.all(k, event.by_name[k].zip != '')":   nil,
		"event.lines.exists(l, event.lineS == 1)":            {"event lineS"},
		"data.list.map(event, event.thing)":                  nil, // another event
		"data.list.map(event, event.thing).size() + event.n": {"event n"},
		"{'a': event.A, event.B: [event.C]}":                 {"event A", "event B", "event C"},
		"event.A + event.A":                                  {"event A"},
		"string(event.A).contains(event.B)":                  {"event A", "event B"},
	} {
		x, err := env.Compile(text, expr.Any)
		require.NoError(t, err, text)
		var got []string
		all, _ := x.Unknown("event", event)
		for _, u := range all {
			got = append(got, u.Object+" "+u.Field)
		}
		require.ElementsMatch(t, want, got, text)
	}
	for text, want := range map[string]bool{"event.id": false, "'id' in event": true, "event['id']": true, "event.id in [event.any]": false, "size(event) > 0": true} {
		x, err := env.Compile(text, expr.Any)
		require.NoError(t, err, text)
		_, whole := x.Unknown("event", event)
		require.Equal(t, want, whole, text)
	}
}

// TestMisusedNamesAnOperandOfAnotherType: such an expression fails.
func TestMisusedNamesAnOperandOfAnotherType(t *testing.T) {
	t.Parallel()
	is := func(t expr.Type) *expr.Shape { return &expr.Shape{Type: t} }
	seat := &expr.Shape{Fields: map[string]*expr.Shape{"row": is(expr.String), "n": is(expr.Int)}}
	event := &expr.Shape{Fields: map[string]*expr.Shape{
		"id": is(expr.String), "ok": is(expr.Bool), "rate": {Number: true}, "either": {}, "seat": seat, "seats": {Elements: seat}, "by": {Values: seat},
	}}
	env, err := expr.NewEnv(map[string]expr.Fields{"event": nil, "data": {"n": expr.Int}})
	require.NoError(t, err)
	for text, want := range map[string]string{
		"event.seat.row + 'x'":                               "",
		"event.seat.row + 1":                                 "event.seat.row is a text, which cannot be added with a number",
		"event.seat.n + event.rate":                          "",
		"event.rate * 2.0 > 1.0":                             "",
		"event.id * 2":                                       "event.id is a text, which cannot be calculated",
		"-event.seats[0].n < 3 && !event.ok":                 "",
		"event.seats[0].n || event.ok":                       "event.seats[].n is a number, want true or false",
		"event.by['a'] > 1":                                  "event.by.a is an object, which cannot be compared",
		"event.seats.exists(s, s.row > 1)":                   "event.seats[].row is a text, which cannot be compared with a number",
		"event.seats.map(s, s.n + 1)[0] == 2":                "",
		"(event.ok ? event.id : event.either) + 'x'":         "",
		"(event.seat != null ? event.seat.n : 0) > 1":        "",
		"(event.seat != null ? event.seat.row : '') > 1":     "event.seat.row is a text, which cannot be compared with a number",
		"(event.ok && event.id != '' ? event.id : 1) + 1":    "event.id is a text, which cannot be added with a number",
		"event.either + 1 > data.n && event.either == 'x'":   "",
		"(event.id ? 1 : 2) + event.rate":                    "event.id is a text, want true or false",
		"event.ok ? event.id : event.seats":                  "",
		"event.seats + event.seats == event.seats && !false": "",
	} {
		x, err := env.Compile(text, expr.Any)
		require.NoError(t, err, text)
		require.Equal(t, want, x.Misused("event", event), text)
	}
}
