package participant_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A setBackPlan is one random history of a group whose broker loses the ends of its logs.
type setBackPlan struct {
	Partitions int32
	Batch      int
	Session    bool // the members use fetch sessions
	Forever    bool // the inbox forgets nothing
	Steps      []setBackStep
}

// A setBackStep is a fault, an act of an operator, or messages. Kind chooses the method of setBackHistory that runs it.
type setBackStep struct {
	Kind string
	Key  int
	N    int
	Held bool // the messages fail until the next settle
	Type string
}

func (s setBackStep) String() string {
	return fmt.Sprintf("%s key=%d n=%d held=%v %s", s.Kind, s.Key, s.N, s.Held, s.Type)
}

const (
	stepSend    = "send"
	stepJoin    = "join"
	stepClose   = "close"
	stepKill    = "kill"
	stepCopy    = "copy"        // of the broker's disks
	stepRestore = "restore"     // sets all logs, and the group's offsets, back to the copy
	stepCut     = "cut"         // sets one log back to the copy, with a later epoch: an unclean election of a leader
	stepTear    = "tear"        // the same with the same epoch
	stepNotice  = "notice"      // the members notice the loss
	stepSettle  = "settle"      // each message is handled
	stepRebuild = "rebuild"     // begins one
	stepCancel  = "cancel"      // the rebuild
	stepAway    = "no database" // the members lose it
	stepBack    = "database"
)

func drawSetBackPlan(t *rapid.T) setBackPlan {
	p := setBackPlan{
		Partitions: int32(rapid.IntRange(1, 2).Draw(t, "partitions")),
		Batch:      rapid.SampledFrom([]int{1, 100}).Draw(t, "batch"),
		Session:    rapid.Bool().Draw(t, "session"),
	}
	life := []string{stepSend, stepSend, stepSend, stepJoin, stepJoin, stepClose, stepKill, stepSettle, stepRebuild, stepCancel, stepAway, stepBack, stepBack}
	after := append([]string{stepNotice, stepSend, stepCopy}, life...)
	losses := []string{stepRestore, stepRestore, stepCut, stepTear}
	for range rapid.IntRange(1, 3).Draw(t, "number of losses") {
		p.draw(t, 4, life)
		p.draw(t, 1, []string{stepCopy})
		p.draw(t, 1, []string{stepSend})
		p.draw(t, 4, life)
		p.draw(t, 1, []string{stepSettle, stepSettle, stepSettle, stepSend})
		p.draw(t, 3, []string{stepRebuild, stepClose, stepKill, stepClose, stepKill, stepAway, stepJoin})
		p.draw(t, 1, losses)
		p.draw(t, 5, after)
	}
	p.Forever = rapid.Bool().Draw(t, "forever")
	return p
}

// draw adds up to most steps, and at least one.
func (p *setBackPlan) draw(t *rapid.T, most int, kinds []string) {
	for range rapid.IntRange(1, most).Draw(t, "number of steps") {
		p.Steps = append(p.Steps, setBackStep{
			Kind: rapid.SampledFrom(kinds).Draw(t, "step"),
			Key:  rapid.IntRange(0, 3).Draw(t, "key"),
			N:    rapid.SampledFrom([]int{1, 1, 2, 3, 5, 8, 30}).Draw(t, "n"),
			Held: rapid.IntRange(0, 5).Draw(t, "held") == 0,
			Type: rapid.SampledFrom([]string{"Paid", "Paid", "Refunded"}).Draw(t, "type"),
		})
	}
}

// setBackHistories limits the histories of a run without TROUPE_MODEL. Their seeds count from 1.
const setBackHistories = 10

// TestAnyHistoryOfABrokerThatIsSetBack runs random histories for TROUPE_MODEL, or the one of TROUPE_SEED, or else the same few at each run. Members join,
// close, are killed and lose their database, a rebuild runs and is cancelled, and the broker is restored from a copy of its disks, or one log loses its
// end, while senders go on before and after the members notice. In the end each message that is in a log has had its effect once, in the order of its
// key, and no member reports a loss without one. A log that has grown past a member's position, or past the watermark, before it was compared is an exception:
// its messages with offsets that were used before may be passed over.
func TestAnyHistoryOfABrokerThatIsSetBack(t *testing.T) {
	t.Parallel()
	run := func(seed int) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			plan := rapid.Custom(drawSetBackPlan).Example(seed)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%+v", plan)
				}
			})
			newSetBackHistory(t, plan).run()
		})
	}
	if text := os.Getenv("TROUPE_SEED"); text != "" {
		seed, err := strconv.Atoi(text)
		require.NoError(t, err)
		run(seed)
		return
	}
	if text := os.Getenv("TROUPE_MODEL"); text != "" {
		length, err := time.ParseDuration(text)
		require.NoError(t, err)
		n, first := 0, int(time.Now().Unix()%1_000_000)*1000
		for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); n++ {
			run(first + n)
		}
		t.Logf("%d histories", n)
		return
	}
	for seed := 1; seed <= setBackHistories && !t.Failed(); seed++ {
		run(seed)
	}
}

func (h *setBackHistory) run() {
	for i, step := range h.plan.Steps {
		h.t.Logf("step %d: %s", i, step)
		switch step.Kind {
		case stepSend:
			h.send(step)
		case stepJoin:
			h.join()
		case stepClose:
			h.leave(step.Key, false)
		case stepKill:
			h.leave(step.Key, true)
		case stepCopy:
			h.copyDisks()
		case stepRestore:
			h.restore()
		case stepCut:
			h.cut(int32(step.Key)%h.plan.Partitions, true)
		case stepTear:
			h.cut(int32(step.Key)%h.plan.Partitions, false)
		case stepNotice:
			h.notice()
		case stepSettle:
			h.settle()
		case stepRebuild:
			h.begin()
		case stepCancel:
			h.cancelRebuild()
		case stepAway:
			h.away(true)
		case stepBack:
			h.away(false)
		}
	}
	h.settle()
	h.judge()
	h.t.Logf("%d losses, %d rebuilds, %d members, %d messages", h.losses, h.generation, len(h.members), len(h.sent))
}

// judge checks the effects against the logs.
func (h *setBackHistory) judge() {
	effects := h.effects()
	var wrong []string
	last := make(map[string]int) // the position of the last effect of a key
	for _, m := range h.logs() {
		e := effects[m.n]
		allowed := h.unseen(m)
		switch {
		case e.once == 1 || e.once == 0 && allowed:
		default:
			wrong = append(wrong, fmt.Sprintf("%s has %d effects", m, e.once))
		}
		if m.typ == "Refunded" && e.rebuilt > 0 || e.rebuilt > h.generation {
			wrong = append(wrong, fmt.Sprintf("%s was rebuilt %d times", m, e.rebuilt))
		}
		if e.once > 0 && !allowed { // a message that was passed over may be read again after a later loss
			if e.position < last[m.key] {
				wrong = append(wrong, fmt.Sprintf("%s took effect before an earlier message of its key", m))
			}
			last[m.key] = max(last[m.key], e.position)
		}
	}
	for n, e := range effects {
		if e.once > 1 {
			wrong = append(wrong, fmt.Sprintf("message %d has %d effects", n, e.once))
		}
	}
	reports := 0
	for _, m := range h.members {
		text := m.log.String()
		reports += strings.Count(text, "lost the end of a log") + strings.Count(text, "the log ends before messages that have ended")
		// A member that is killed before it has committed the lower offset, or a copy from before that, lets the next one take new messages for ones that
		// the database has lost.
		if strings.Contains(text, "the database has lost transactions") || !h.cutOff && strings.Contains(text, "the database has lost messages") {
			wrong = append(wrong, "a member reports a loss of the database")
		}
	}
	if h.losses == 0 && reports > 0 || reports > 20*(1+h.losses)*len(h.members) {
		wrong = append(wrong, fmt.Sprintf("%d reports of %d losses", reports, h.losses))
	}
	if len(wrong) > 0 {
		h.dump()
		h.t.Fatal(strings.Join(wrong, "\n"))
	}
}
