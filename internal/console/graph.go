package console

import (
	"fmt"
	"strings"

	"github.com/troupe-go/troupe/saga"
)

// A drawing is a graph of steps, for a template.
type drawing struct {
	Width, Height int
	Label         string
	Steps         []drawnStep
	Edges         []string // paths
}

type drawnStep struct {
	box
	Name, Phase, About, Doing string
	Pivot                     bool
	Marked                    bool // on the path of a finding
}

// drawSteps returns the graph of a definition's steps, with their phases if state is not nil.
func drawSteps(spec saga.Spec, state *saga.State) drawing {
	index := make(map[string]int)
	for i, st := range spec.Steps {
		index[st.Name] = i
	}
	var edges [][2]int
	for i, st := range spec.Steps {
		for _, name := range st.Needs {
			edges = append(edges, [2]int{index[name], i})
		}
	}
	plan := layOut(len(spec.Steps), edges)
	d := drawing{Width: plan.width, Height: plan.height, Edges: plan.paths}
	var said []string
	for i, st := range spec.Steps {
		one := drawnStep{box: plan.boxes[i], Name: clip(st.Name, 22), About: clip(asks(st), 28), Pivot: st.Pivot}
		if st.AtLeast > 0 {
			one.About = clip(fmt.Sprintf("%d of %d: %s", st.AtLeast, len(st.Needs), asks(st)), 28)
		}
		if st.Optional {
			one.About = clip("optional: "+asks(st), 28)
		}
		if st.ForEach != nil {
			one.About = clip("for each "+st.ForEach.As+": "+asks(st), 28)
		}
		if state != nil {
			ss := state.Steps[i]
			one.Phase, one.Doing = phaseName(ss.Phase), clip(doing(ss)+itemsDone(st, *state), 34)
			said = append(said, st.Name+" "+one.Phase)
		} else {
			said = append(said, st.Name)
		}
		d.Steps = append(d.Steps, one)
	}
	d.Label = "Steps: " + strings.Join(said, ", ")
	return d
}

// asks returns the command, the call or the event of a step.
func asks(st saga.Step) string {
	switch {
	case st.Command != nil:
		return tail(st.Command.Type)
	case st.Call != nil:
		return st.Call.Method + " " + st.Call.Endpoint
	case len(st.Success) > 0:
		return "awaits " + tail(st.Success[0].Event)
	}
	return "others meet here"
}

func phaseName(p saga.Phase) string {
	if p == saga.StepWaiting {
		return "waiting"
	}
	return strings.ReplaceAll(string(p), "_", " ")
}

func doing(ss saga.StepState) string {
	text := phaseName(ss.Phase)
	if ss.Epoch > 0 {
		text += fmt.Sprintf(", sent %d times", ss.Epoch+1)
	}
	if ss.BackEpoch > 0 {
		text += fmt.Sprintf(", undone %d times", ss.BackEpoch+1)
	}
	if ss.Doubt && ss.Phase != saga.Doubt {
		text += ", in doubt"
	}
	if ss.Tolerated {
		text += ", tolerated"
	}
	return text
}

// itemsDone returns the text for the number of items of a step that are done; "" if it has no items.
func itemsDone(st saga.Step, state saga.State) string {
	done, all := 0, 0
	for _, ss := range state.Steps {
		if st.ForEach != nil && strings.HasPrefix(ss.Name, st.Name+"[") {
			all++
			if ss.Phase == saga.Done {
				done++
			}
		}
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %d items done", done, all)
}

func clip(text string, n int) string {
	whole := len(text) <= 4*n
	r := []rune(text[:min(len(text), 4*n)]) // n characters have 4n bytes at most
	if !whole || len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
