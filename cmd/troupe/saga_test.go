package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// TestTheOperatorsPageOfSagas follows docs/operating-sagas.md, with a flow and the commands, and compares the page
// with their output. Run it with -v to see a page's worth of output.
func TestTheOperatorsPageOfSagas(t *testing.T) {
	s := newDecider(t)
	s.begin("order", "o-1001", saga.Completed)
	s.tell("o-1002 ReserveStock", "fail")
	given := s.begin("order", "o-1002", saga.Parked)
	s.tell("o-1003 ShipOrder", "hang")
	doubt := s.begin("express", "o-1003", saga.Parked)
	s.tell("o-1004 ShipOrder", "refuse")
	s.tell("o-1004 ReleaseStock", "refuse")
	stuck := s.begin("order", "o-1004", saga.Parked)

	s.shows("saga", "list", "--status", "parked")
	s.shows("saga", "list", "--counts")
	require.Contains(t, s.shows("saga", "show", given), "the warehouse answers 503")
	s.tell("o-1002 ReserveStock", "")
	why := []string{"--actor", "ann", "--reason", "ticket 4711: the warehouse is back"}
	s.shows(append([]string{"saga", "retry", given, "--dry-run"}, why...)...)
	s.await(given, saga.Parked)
	s.shows(append([]string{"saga", "retry", given}, why...)...)
	s.await(given, saga.Completed)
	s.shows("saga", "show", given)

	s.shows("saga", "show", doubt)
	require.Contains(t, s.shows("saga", "resolve", doubt, "--happened", "yes", "--result", `{"shipment_id": "s-17"}`, "--actor", "ann", "--reason",
		"ticket 4712: the carrier has it as s-17", "--yes"), "completed, and was parked")
	s.await(doubt, saga.Completed)

	s.shows("saga", "show", stuck)
	o := s.troupe("saga", "resume", stuck, "--actor", "ann", "--reason", "ticket 4713")
	require.Equal(t, exitFailed, o.status)
	require.Equal(t, "troupe: saga order/o-1004: refused: step inventory is compensate_failed: retry, skip or resolve it\n", o.stderr)
	s.shows("saga", "resolve", stuck, "--happened", "yes", "--actor", "ann", "--reason", "ticket 4713: pallet freed by hand", "--yes")
	s.await(stuck, saga.Compensated)
	s.shows("saga", "show", stuck)

	for _, key := range []string{"o-1008", "o-1009"} {
		s.tell(key+" ReserveStock", "fail")
		s.begin("express", key, saga.Parked)
		s.tell(key+" ReserveStock", "")
	}
	all := []string{"saga", "retry", "--saga", "express", "--actor", "ann", "--reason", "ticket 4717: the warehouse is back"}
	o = s.troupe(all...)
	require.Equal(t, exitUsage, o.status)
	require.Contains(t, o.stderr, "it would retry 2 parked sagas of type express, at most 50 a second, as ann: there is no terminal for the confirmation")
	s.shows(append(all, "--dry-run")...)
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.sagas WHERE saga = 'express' AND status = 'parked'"))
	s.shows(append(all, "--yes")...)
	s.await("express/o-1008", saga.Completed)
	s.await("express/o-1009", saga.Completed)

	s.tell("o-1005 ReserveStock", "fail")
	s.tell("o-1006 ShipOrder", "fail")
	s.begin("order", "o-1005", saga.Parked)
	s.begin("order", "o-1006", saga.Parked)
	start := []string{
		"saga", "start", "order", "o-1007", "--data", "customer_id=c-7", "--json", `{"amount_cents": 1999, "title": 7, "quantity": 1}`,
		"--actor", "ann", "--reason", "ticket 4716: taken on the phone",
	}
	s.shows(append(start, "--dry-run")...)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.sagas WHERE id = 'order/o-1007'"))
	s.shows(start...)
	s.await("order/o-1007", saga.Completed)
	s.shows(start...)

	mended := s.definition(func(spec *saga.Spec) {
		ship := *spec.Steps[2].Command
		ship.Type = "ShipParcel"
		spec.Version, spec.Steps[2].Command = 2, &ship
	})
	home, err := os.Getwd()
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("order.saga.json", mended.JSON(), 0o600))
	s.shows("saga", "migrate", "order.saga.json", "--dry-run")
	s.shows("saga", "migrate", "order.saga.json", "--actor", "ann", "--reason", "ticket 4714: parcels", "--yes")
	s.shows("saga", "abandon", "order/o-1006", "--actor", "ann", "--reason", "ticket 4715: settled by hand", "--yes")
	s.shows("saga", "locks")
	require.Contains(t, s.shows("saga", "replay", "--all"), " 0 differ")
	s.exec("UPDATE troupe.sagas SET state = jsonb_set(state, '{data,amount_cents}', '1') WHERE id = 'order/o-1001'")
	o = s.troupe("saga", "replay", "order/o-1001")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stdout, "order/o-1001: data.amount_cents: the row has 1, the log gives 1999")

	shown := strings.ReplaceAll(s.record.String(), s.flow, "order")
	t.Log("\n" + shown)
	page, err := os.ReadFile(filepath.Join(home, "../../docs/operating-sagas.md"))
	require.NoError(t, err)
	for block := range strings.SplitSeq(shown, "\n$ ") {
		require.True(t, strings.Contains(alike(string(page)), alike(block)), "docs/operating-sagas.md does not show\n%s", block)
	}
}

func TestSagasAreThereAsJSON(t *testing.T) {
	t.Parallel()
	s := newDecider(t)
	s.tell("o-1 ReserveStock", "fail")
	id := s.begin("order", "o-1", saga.Parked)
	var list struct {
		Sagas []sagadesk.Row
		Next  string
	}
	s.json(&list, "saga", "list", "--saga", "order")
	require.Len(t, list.Sagas, 1)
	require.Equal(t, saga.Parked, list.Sagas[0].Status)
	var show struct {
		Saga struct {
			ID    string
			State saga.State
			Spec  saga.Spec
		}
		Log      []decisions.Entry
		Possible []saga.Event
	}
	s.json(&show, "saga", "show", id)
	require.Equal(t, id, show.Saga.ID)
	require.Equal(t, "order", show.Saga.Spec.Saga)
	require.Equal(t, show.Saga.State.Version, len(show.Log))
	require.Len(t, show.Possible, 7)
	var would struct {
		Done     bool
		Status   saga.Status
		Commands []facts
	}
	s.json(&would, "saga", "retry", id, "inventory", "--dry-run", "--reason", "r")
	require.False(t, would.Done)
	require.Equal(t, saga.Running, would.Status)
	require.Equal(t, "ReserveStock", would.Commands[0].Type)
	s.moves(id)
	s.json(&would, "saga", "compensate", id, "--yes", "--reason", "r")
	require.True(t, would.Done)
	s.await(id, saga.Compensated)
	var counts map[string]int
	s.json(&counts, "saga", "replay", "--all")
	require.Equal(t, map[string]int{"sagas": 1, "events": counts["events"], "differ": 0, "erased": 0}, counts)

	for args, want := range map[string]struct {
		status         int
		stdout, stderr string
	}{
		"saga list --status parked":               {0, "No sagas.\n", ""},
		"saga list --status parked --output json": {0, `{"next":"","sagas":[]}` + "\n", ""},
		"saga locks":                                       {0, "Nothing is locked.\n", ""},
		"saga show order/none":                             {1, "", "not found in this database"},
		"saga replay order/none":                           {1, "", "not found in this database"},
		"saga abandon order/o-1 --reason r --yes":          {1, "", "the saga has ended: compensated"},
		"saga abandon order/o-1 --reason r":                {1, "", "the saga has ended: compensated"},
		"saga migrate none.json --dry-run":                 {1, "", "none.json"},
		"saga migrate --to none --dry-run":                 {1, "", "definition none: not found in this database"},
		"saga migrate --to order --from express --dry-run": {2, "", "want two definitions of one saga"},
	} {
		o := s.troupe(strings.Fields(args)...)
		require.Equal(t, want.status, o.status, "%s: %+v", args, o)
		require.Equal(t, want.stdout, o.stdout, args)
		require.Contains(t, o.stderr, want.stderr, args)
	}
}

// moves moves a saga to a corrected definition, and back to the stored one.
func (s *decider) moves(id string) {
	s.t.Helper()
	mended := s.definition(func(spec *saga.Spec) { spec.Version, spec.Description = 2, "mended" })
	file := filepath.Join(s.t.TempDir(), "order.saga.json")
	require.NoError(s.t, os.WriteFile(file, mended.JSON(), 0o600))
	first := s.definition(nil).Hash()
	for _, m := range []struct {
		args         string
		moves, stays int
	}{
		{file + " --from " + first + " --dry-run", 1, 0},
		{file + " --from " + first + " --yes --reason r", 1, 0},
		{"--from " + first + " --to " + mended.Hash() + " --dry-run", 0, 0},
		{"--from " + mended.Hash() + " --to " + first + " --yes --reason r", 1, 0},
		{"--to " + first + " --dry-run", 0, 0},
	} {
		o := s.troupe(append([]string{"saga", "migrate", "--output", "json"}, strings.Fields(m.args)...)...)
		require.Equal(s.t, exitDone, o.status, "%s: %s", m.args, o.stderr)
		lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
		var end struct{ Moves, Stays int }
		require.NoError(s.t, json.Unmarshal([]byte(lines[len(lines)-1]), &end), o.stdout)
		require.Equal(s.t, []int{m.moves, m.stays}, []int{end.Moves, end.Stays}, m.args)
		require.Len(s.t, lines, m.moves+m.stays+1)
	}
	require.Equal(s.t, 2, s.count("SELECT count(*) FROM troupe.saga_events WHERE kind = 'migrated' AND saga_id = '"+id+"'"))
}

func TestSagaActionsNeedAReasonAndAConfirmation(t *testing.T) {
	t.Parallel()
	here := []string{"DATABASE_URL=postgres://nobody:secret@127.0.0.1:1/none"}
	for args, want := range map[string]string{
		"saga":                                                "Usage:",
		"saga dance":                                          `unknown command "dance"`,
		"saga list --status gone":                             `status "gone"`,
		"saga list --limit 10001":                             "want 1 to 10000",
		"saga list --after x":                                 `after: "x": want the cursor`,
		"saga retry o":                                        "--reason: want a reason",
		"saga retry":                                          "want a saga, or --saga with the type",
		"saga retry o a b --reason r":                         "at most 2 arg",
		"saga retry o --saga order":                           "and not both",
		"saga retry o --rate 5 --reason r":                    "name it with --saga",
		"saga retry --saga order":                             "--reason: want a reason",
		"saga retry --saga order --rate 0 --reason r":         "--rate 0: want more than 0",
		"saga compensate a b --reason r":                      "accepts 1 arg",
		"saga resolve o s --reason r":                         "--happened is not set",
		"saga skip o s --reason r --result x":                 "--result: want a JSON object",
		"saga resolve o --happened no --reason r --result {}": "has no result",
		"saga replay":                                         "a saga's id or --all",
		"saga replay x --all":                                 "a saga's id or --all",
		"saga migrate x":                                      "--reason: want a reason",
		"saga migrate --reason r":                             "want a definition's file, or --to",
		"saga migrate x --to y --reason r":                    "want a definition's file, or --to",
		"saga show o --output xml":                            "want table, json, yaml",
		"saga start order":                                    "accepts 2 arg",
		"saga start order o-1":                                "--reason: want a reason",
		"saga start order o-1 --reason r --avro":              "need --hop",
	} {
		o := finish(t, command(t, here, strings.Fields(args)...))
		require.Equal(t, exitUsage, o.status, "%s: %+v", args, o)
		require.Contains(t, o.stderr, want, args)
		require.Empty(t, o.stdout, args)
	}
}

// A start from the command line converts the variables to their types, names invalid ones, and, if there is no saga of the type
// yet, requires the hop of its coordinator.
func TestASagaIsStartedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newDecider(t)
	start := func(more ...string) outcome { return s.troupe(append([]string{"saga", "start", "order"}, more...)...) }
	fields := []string{"--data", "customer_id=c-7", "--data", "amount_cents=1999", "--json", `{"title": 7, "quantity": 2, "amount_cents": 5}`, "--reason", "r"}
	for args, want := range map[string]string{
		"o-1 --reason r --data amount_cents=x":                        "want a value of type int",
		"o-1 --reason r --data amount_cents=1,\"w\":2":                "want a value of type int",
		"o-1 --reason r --data amount_cents":                          "want name=value",
		"o-1 --reason r --data order_id=o-2":                          "the variable order_id is the key",
		"o-1 --reason r --json []":                                    "--json",
		"o-1 --reason r --hop " + s.flow + ".order --data colour=red": "has no variable colour",
		"o-1 --reason r":                                              "name the coordinator's hop",
	} {
		o := start(strings.Fields(args)...)
		require.NotEqual(t, exitDone, o.status, args)
		require.Contains(t, o.stderr, want, args)
	}
	o := s.troupe("saga", "start", "none", "o-1", "--reason", "r")
	require.Contains(t, o.stderr, "definition none: not found in this database")

	var did struct {
		Saga     string
		Done     bool
		Status   saga.Status
		Commands []facts
	}
	s.json(&did, append([]string{"saga", "start", "order", "o-1", "--hop", s.flow + ".order"}, fields...)...)
	require.True(t, did.Done)
	require.Equal(t, "order/o-1", did.Saga)
	require.Equal(t, "ChargePayment", did.Commands[0].Type)
	s.await("order/o-1", saga.Completed)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.sagas WHERE state->'data'->>'amount_cents' = '1999' AND state->'data'->>'quantity' = '2'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.saga_events WHERE kind = 'started' AND reason = 'r' AND actor <> ''"))
	s.json(&did, append([]string{"saga", "start", "order", "o-1"}, fields...)...)
	require.False(t, did.Done)
	require.Equal(t, saga.Completed, did.Status)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE type = 'ChargePayment'"))
	s.json(&did, append([]string{"saga", "start", s.definition(nil).Hash(), "o-2"}, fields...)...) // the first saga shows the hop
	s.await("order/o-2", saga.Completed)
	require.Contains(t, s.troupe("saga", "replay", "--all").stdout, " 0 differ")
}

// The drawing is a tree for any graph, and fits a terminal.
func TestDrawingsOfGraphsFitATerminal(t *testing.T) {
	t.Parallel()
	spec := saga.Spec{Steps: []saga.Step{
		{Name: "submitted"},
		{Name: "value", Needs: []string{"submitted"}, Command: &saga.Command{Type: "CheckValue"}},
		{Name: "legality", Needs: []string{"submitted"}, Success: []saga.Answer{{Event: "FoundLegal"}}},
		{Name: "credit", Needs: []string{"submitted"}, Call: &saga.Call{Method: "POST", Endpoint: "/credit/{customer_id}/reservations"}},
		{Name: "approve", Needs: []string{"value", "legality", "credit"}, Command: &saga.Command{Type: "Approve"}, Pivot: true},
	}}
	s := saga.State{Steps: []saga.StepState{
		{Name: "submitted", Phase: saga.Done}, {Name: "value", Phase: saga.GivenUp, Epoch: 1}, {Name: "legality", Phase: saga.Intent},
		{Name: "credit", Phase: saga.Doubt, Doubt: true}, {Name: "approve"},
	}}
	var b bytes.Buffer
	drawSteps(&b, spec, s)
	require.Equal(t, `  ✓ submitted      done
  ├─ ! value       exhausted  CheckValue; sent 2 times
  ├─ ▸ legality    intent     awaits FoundLegal
  └─ ? credit      doubt      POST /credit/{customer_id}/reservations; in doubt
     └─ · approve  waiting    Approve; pivot; needs value, legality, too
`, b.String())
	var chain saga.Spec
	for i := range 60 {
		st := saga.Step{Name: "step-" + strings.Repeat("x", i)}
		if i > 0 {
			st.Needs = []string{"step-" + strings.Repeat("x", i-1)}
		}
		chain.Steps = append(chain.Steps, st)
	}
	b.Reset()
	drawSteps(&b, chain, saga.State{})
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 80, line)
	}
	require.Regexp(t, regexp.MustCompile(`… *waiting`), b.String())
	text, err := json.Marshal(sends(nil))
	require.NoError(t, err)
	require.Equal(t, "[]", string(text))
}
