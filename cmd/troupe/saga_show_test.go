package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/moments"
	"github.com/troupe-go/troupe/saga"
)

// TestAHistoryShowsTheServersRoleAndTime checks that they are printed if they differ from the entry's own.
func TestAHistoryShowsTheServersRoleAndTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		entry decisions.Entry
		want  string
	}{
		"of a person": {
			decisions.Entry{At: at, Event: saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "r"}, RecordedAt: at.Add(time.Second), Role: "ops"},
			"  2026-11-24 12:00:00Z  abandon by ann (role ops): r\n",
		},
		"from before the server recorded them": {
			decisions.Entry{At: at, Event: saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "r"}},
			"  2026-11-24 12:00:00Z  abandon by ann: r\n",
		},
		"with a time of its own": {
			decisions.Entry{At: at, Moments: []saga.Moment{{What: moments.SagaCompleted}}, RecordedAt: at.Add(11 * time.Minute), Role: "shop"},
			"  2026-11-24 12:00:00Z  SagaCompleted\n  2026-11-24 12:00:00Z  the server wrote this entry at 2026-11-24 12:11:00Z, for role shop\n",
		},
	} {
		var b bytes.Buffer
		printEntry(&b, nil, c.entry)
		require.Equal(t, c.want, b.String(), name)
	}
}

func TestAStepThatTheSagaWentOnWithoutIsShown(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	drawSteps(&b, saga.Spec{Steps: []saga.Step{
		{Name: "flight", Command: &saga.Command{Hop: "flight", Type: "BookFlight"}, Optional: true},
		{Name: "hotel", Command: &saga.Command{Hop: "hotel", Type: "BookHotel"}, Optional: true},
		{Name: "payment", Needs: []string{"flight", "hotel"}, AtLeast: 1, Command: &saga.Command{Hop: "payment", Type: "Pay"}},
	}}, saga.State{Steps: []saga.StepState{
		{Name: "flight", Phase: saga.Done}, {Name: "hotel", Phase: saga.Refused, Tolerated: true}, {Name: "payment", Phase: saga.Intent},
	}})
	require.Equal(t, `  ✓ flight      done     BookFlight; optional
  ✗ hotel       refused  BookHotel; optional, the saga goes on without it
  └─ ▸ payment  intent   Pay; needs at least 1 of 2; needs flight, too
`, b.String())
}

// A producer chooses the key of a saga, and an operator copies the printed command into a shell.
func TestAPrintedCommandIsOneCommandInAShell(t *testing.T) {
	t.Parallel()
	const id = "order/o-1; echo 'no' $(echo no) `echo no` > no #"
	g := &sagadesk.Detail{Row: sagadesk.Row{ID: id, Status: saga.Parked}}
	for _, e := range []saga.Event{{Kind: saga.ActRetry, Step: "payment"}, {Kind: saga.ActAbandon}, {Kind: saga.ActResolve, Step: "payment", Happened: true}} {
		var b bytes.Buffer
		printPossible(&b, g, []saga.Event{e})
		printed := b.String()[strings.LastIndex(b.String(), "troupe saga"):]
		shell := exec.CommandContext(t.Context(), "sh", "-c", `troupe() { printf '%s\n' "$3"; }`+"\n"+printed)
		shell.Dir = t.TempDir()
		out, err := shell.CombinedOutput()
		require.NoError(t, err, printed)
		require.Equal(t, id+"\n", string(out), printed)
	}
}
