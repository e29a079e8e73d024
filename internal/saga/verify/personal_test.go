package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// trip is a saga without mistakes: it copies personal fields to fields of the same kind.
func trip() saga.Spec {
	return saga.Spec{
		Saga: "trip", Version: 1, Key: "id",
		Data: map[string]saga.Type{"id": saga.String, "email": saga.String, "people": saga.Any, "names": saga.Any, "plain": saga.String},
		Start: []saga.Start{{Hop: "web", Event: "Booked", When: "event.email != ''", Set: saga.Mapping{
			"id": "event.id", "email": "event.email", "people": "event.people", "plain": "event.city",
		}}},
		Steps: []saga.Step{
			{
				Name: "seat", ForEach: &saga.ForEach{List: "data.people", As: "p", Max: 3},
				Command: &saga.Command{Hop: "air", Type: "Seat", Input: saga.Mapping{"person": "p"}},
				Success: []saga.Answer{{Event: "Seated", Set: saga.Mapping{"names": "event.name"}}},
			},
			{
				Name: "mail", Needs: []string{"seat"}, When: "has(data.email) && data.plain == 'Cork'",
				Command: &saga.Command{Hop: "mail", Type: "Mail", Input: saga.Mapping{"to": "data.email", "names": "data.names", "city": "data.plain"}},
				Success: []saga.Answer{{Event: "Mailed"}},
			},
			{Name: "paid", Needs: []string{"mail"}, Success: []saga.Answer{{Hop: "pay", Event: "Paid"}}},
		},
		Deadlines: []saga.Deadline{{Name: "late", After: saga.Duration(1), Payload: saga.Mapping{"who": "data.email"},
			Emit: []saga.Emit{{Event: "Late", Input: saga.Mapping{"to": "deadline.who"}}}}},
		Completed: []saga.Emit{{Event: "Done", Input: saga.Mapping{"to": "data.email"}}},
	}
}

var marks = map[string]map[string]string{
	"Booked": {"email": "email", "people.name": "name"},
	"Seat":   {"person.name": "name"},
	"Seated": {"name": "name"},
	"Mail":   {"to": "email", "names": "name"},
	"Paid":   {"email": "email"},
	"Done":   {"to": "email"},
	"Late":   {"to": "email"},
}

// TestAUseOfAPersonalFieldIsFound checks each expression of a definition. A copy to a field of the same kind is no finding.
func TestAUseOfAPersonalFieldIsFound(t *testing.T) {
	t.Parallel()
	found := func(t *testing.T, change func(s *saga.Spec)) (all []string) {
		s := trip()
		change(&s)
		d, err := saga.Define(s)
		require.NoError(t, err)
		for _, f := range verify.Definition(d, verify.Options{Personal: marks}) {
			if f.Rule == "personal-field" {
				all = append(all, f.Path+": "+f.Text)
			}
		}
		return all
	}
	require.Empty(t, found(t, func(*saga.Spec) {}))

	const (
		sees    = " is personal (email), and a saga sees its encrypted text: "
		compute = sees + "copy it, compare it with '', or let a service that can decrypt it decide"
		other   = sees + "use a field that is not personal, such as an id"
		gets    = " gets the encrypted text of personal data (email) in "
	)
	for name, test := range map[string]struct {
		change func(s *saga.Spec)
		want   []string
	}{
		"when of a start": {func(s *saga.Spec) { s.Start[0].When = "event.email.endsWith('.ie')" }, []string{"start[0].when: event.email" + compute}},
		"set":             {func(s *saga.Spec) { s.Start[0].Set["email"] = "'mailto:' + event.email" }, []string{"start[0].set.email: event.email" + compute}},
		"the key":         {func(s *saga.Spec) { s.Start[0].Set["id"] = "event.email" }, []string{"start[0].set.id: event.email" + other}},
		"lock":            {func(s *saga.Spec) { s.Lock = "data.email" }, []string{"lock: data.email" + other}},
		"when of a step":  {func(s *saga.Spec) { s.Steps[1].When = "data.email == 'a@b'" }, []string{"steps[1].when: data.email" + compute}},
		"when of an answer": {func(s *saga.Spec) { s.Steps[2].Success[0].When = "event.email == data.email" },
			[]string{"steps[2].success[0].when: event.email" + compute, "steps[2].success[0].when: data.email" + compute}},
		"a list": {func(s *saga.Spec) { s.Steps[0].ForEach.List = "data.people.filter(x, x.name != 'Bob')" },
			[]string{"steps[0].forEach.list: data.people.name is personal (name), and a saga sees its encrypted text: copy it, compare it with '', or let a service that can decrypt it decide"}},
		"an element": {func(s *saga.Spec) { s.Steps[0].Command.Input["person"] = "{'name': p.name + '!'}" },
			[]string{"steps[0].command.input.person: p.name is personal (name), and a saga sees its encrypted text: copy it, compare it with '', or let a service that can decrypt it decide"}},
		"a field that is not marked": {func(s *saga.Spec) { s.Steps[1].Command.Input["note"] = "data.email" },
			[]string{"steps[1].command.input.note: Mail" + gets + "note, which is not marked as personal, and is not decrypted: mark it in the schema"}},
		"a field of another kind": {func(s *saga.Spec) { s.Steps[1].Command.Input["names"] = "[data.email]" },
			[]string{"steps[1].command.input.names: Mail" + gets + "names, which is marked as name, and cannot be decrypted: copy it to a field of the same kind"}},
		"a record in a field that is not marked": {func(s *saga.Spec) { s.Steps[0].Command.Input["other"] = "p" },
			[]string{"steps[0].command.input.other: Seat gets the encrypted text of personal data (name) in other.name, which is not marked as personal, and is not decrypted: mark it in the schema"}},
		"a message whose schema is not known": {func(s *saga.Spec) {
			s.Steps[1].Command.Type, s.Steps[1].Command.Input = "Unknown", saga.Mapping{"note": "data.email"}
		}, nil},
		"a field of the event by which a saga is found": {func(s *saga.Spec) {
			s.Steps[2].Success[0].By = &saga.Association{Variable: "plain", Field: "email"}
		}, []string{"steps[2].success[0].by.field: event.email" + sees + "find the saga by a field that is not personal, such as an id"}},
		"a variable by which a saga is found": {func(s *saga.Spec) {
			s.Steps[2].Success[0].By = &saga.Association{Variable: "email", Field: "city"}
		}, []string{"steps[2].success[0].by.variable: data.email" + sees + "find the saga by a field that is not personal, such as an id"}},
		"a variable that is set from another": {func(s *saga.Spec) {
			s.Data["copy"] = saga.String
			s.Steps[1].Success[0].Set = saga.Mapping{"copy": "data.email"}
			s.Ends = []saga.End{{When: "data.copy > 'm'", Then: saga.ThenCompensate, Reason: "data.copy"}}
		}, []string{"ends[0].reason: data.copy" + other, "ends[0].when: data.copy" + compute}},
		"a payload of a deadline": {func(s *saga.Spec) { s.Deadlines[0].Emit[0].Input["to"] = "deadline.who + 'x'" },
			[]string{"deadlines[0].emit[0].input.to: deadline.who" + compute}},
		"an event at the end": {func(s *saga.Spec) { s.Completed[0].Input["to"] = "data.email + 'x'" }, []string{"completed[0].input.to: data.email" + compute}},
		"a call": {func(s *saga.Spec) {
			s.Steps[1].Command, s.Steps[1].Success = nil, nil
			s.Steps[1].Call = &saga.Call{Hop: "mail", Method: "POST", Endpoint: "/mails/{email}", Body: saga.Mapping{"to": "data.email"}}
		}, []string{"steps[1].call.body.to: data.email" + other, "steps[1].call.endpoint: data.email" + other}},
		"a call for each element": {func(s *saga.Spec) {
			s.Steps[0].Command, s.Steps[0].Success = nil, nil
			s.Steps[0].ForEach.List = "[data.email]"
			s.Steps[0].Call = &saga.Call{Hop: "air", Method: "POST", Endpoint: "/seats/{p}/{index}"}
		}, []string{"steps[0].call.endpoint: p" + other}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, found(t, test.change))
		})
	}
}
