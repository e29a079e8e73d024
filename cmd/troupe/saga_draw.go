package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/troupe-go/troupe/saga"
)

// marks has a symbol for each phase of a step.
var marks = map[saga.Phase]string{
	saga.StepWaiting: "·", saga.Skipped: "-", saga.Intent: "▸", saga.Done: "✓", saga.Refused: "✗", saga.GivenUp: "!", saga.Doubt: "?",
	saga.CompensateIntent: "◂", saga.Undone: "↶", saga.CompensateFailed: "‼",
}

func phaseName(p saga.Phase) string {
	if p == saga.StepWaiting {
		return "waiting"
	}
	return string(p)
}

// width80 is the width in characters of a terminal into which a drawing fits.
const width80 = 80

// drawn is a line of the tree.
type drawn struct{ left, phase, right string }

// drawSteps draws a saga's steps as a tree: each below the last of the steps that it needs.
func drawSteps(w io.Writer, spec saga.Spec, s saga.State) {
	children, also := treeOf(spec.Steps)
	byName := make(map[string]saga.StepState)
	for _, ss := range s.Steps {
		byName[ss.Name] = ss
	}
	var lines []drawn
	eachBranch(children, func(i int, first, rest string) {
		st := spec.Steps[i]
		ss := byName[st.Name]
		items := itemsOf(s, st)
		facts := about(st, ss, also[i])
		if st.ForEach != nil {
			facts = strings.Join(append([]string{forEach(st, items)}, facts), "; ")
		}
		lines = append(lines, drawn{tail(first, 36) + marks[ss.Phase] + " " + st.Name, phaseName(ss.Phase), facts})
		for n, item := range shownItems(items) {
			branch := "├─ "
			if n == len(shownItems(items))-1 && len(children[i]) == 0 {
				branch = "└─ "
			}
			lines = append(lines, drawn{tail(rest+branch, 36) + marks[item.Phase] + " " + item.Name, phaseName(item.Phase), about(saga.Step{}, item, nil)})
		}
	})
	left, phase := 0, 0
	for _, l := range lines {
		left, phase = max(left, utf8.RuneCountInString(l.left)), max(phase, len(l.phase))
	}
	left = min(left, 44)
	for _, l := range lines {
		text := fmt.Sprintf("%s  %-*s  %s", padded(l.left, left), phase, l.phase, l.right)
		_, _ = fmt.Fprintln(w, "  "+strings.TrimRight(oneLine(text, width80-3), " "))
	}
}

// eachBranch calls visit for each node of a tree, parents first: below -1 are the roots. first is drawn before the node, and rest
// before further lines of it.
func eachBranch(below map[int][]int, visit func(i int, first, rest string)) {
	var draw func(i int, first, rest string)
	draw = func(i int, first, rest string) {
		visit(i, first, rest)
		for n, k := range below[i] {
			if n < len(below[i])-1 {
				draw(k, rest+"├─ ", rest+"│  ")
			} else {
				draw(k, rest+"└─ ", rest+"   ")
			}
		}
	}
	for _, i := range below[-1] {
		draw(i, "", "")
	}
}

// treeOf gives each step one parent, -1 for none: the deepest of the steps that it needs, the last one of several. also has the
// other steps that it needs.
func treeOf(steps []saga.Step) (children map[int][]int, also map[int][]string) {
	index, depth := make(map[string]int), make(map[string]int)
	for i, st := range steps {
		index[st.Name] = i
	}
	var deep func(name string) int
	deep = func(name string) int {
		if d, known := depth[name]; known {
			return d
		}
		d := 1
		for _, n := range steps[index[name]].Needs {
			d = max(d, deep(n)+1)
		}
		depth[name] = d
		return d
	}
	children, also = make(map[int][]int), make(map[int][]string)
	for i, st := range steps {
		parent := ""
		for _, n := range st.Needs {
			if parent == "" || deep(n) >= deep(parent) {
				parent = n
			}
		}
		if parent == "" {
			children[-1] = append(children[-1], i)
			continue
		}
		children[index[parent]] = append(children[index[parent]], i)
		for _, n := range st.Needs {
			if n != parent {
				also[i] = append(also[i], n)
			}
		}
	}
	return children, also
}

// about returns the further facts of a step.
func about(st saga.Step, ss saga.StepState, also []string) string {
	var all []string
	switch {
	case st.Command != nil:
		all = append(all, st.Command.Type)
	case st.Call != nil:
		all = append(all, st.Call.Method+" "+st.Call.Endpoint)
	case len(st.Success) > 0:
		all = append(all, "awaits "+st.Success[0].Event)
	}
	if ss.Epoch > 0 {
		all = append(all, fmt.Sprintf("sent %d times", ss.Epoch+1))
	}
	if ss.Doubt {
		all = append(all, "in doubt")
	}
	if st.Pivot {
		all = append(all, "pivot")
	}
	switch {
	case ss.Tolerated:
		all = append(all, "optional, the saga goes on without it")
	case st.Optional:
		all = append(all, "optional")
	}
	if st.AtLeast > 0 {
		all = append(all, fmt.Sprintf("needs at least %d of %d", st.AtLeast, len(st.Needs)))
	}
	if len(also) > 0 {
		all = append(all, "needs "+strings.Join(also, ", ")+", too")
	}
	return strings.Join(all, "; ")
}

// tail returns the last n characters of text.
func tail(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return text
}

func padded(text string, n int) string {
	if utf8.RuneCountInString(text) > n {
		text = oneLine(text, n-1)
	}
	return text + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(text)))
}
