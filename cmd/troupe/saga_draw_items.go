package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/saga"
)

// manyItems is the largest number of items that are all drawn. If a step has more, the items that are done are left out.
const manyItems = 20

// itemsOf returns the items that a step with forEach has in a state.
func itemsOf(s saga.State, st saga.Step) (items []saga.StepState) {
	if st.ForEach == nil {
		return nil
	}
	for _, ss := range s.Steps {
		if strings.HasPrefix(ss.Name, st.Name+"[") {
			items = append(items, ss)
		}
	}
	return items
}

// shownItems returns the items that have a line of their own.
func shownItems(items []saga.StepState) []saga.StepState {
	if len(items) <= manyItems {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), func(ss saga.StepState) bool { return ss.Phase == saga.Done })
}

// forEach describes the items of a step.
func forEach(st saga.Step, items []saga.StepState) string {
	text := "for each " + st.ForEach.As
	if len(items) == 0 {
		return text
	}
	done := 0
	for _, ss := range items {
		if ss.Phase == saga.Done {
			done++
		}
	}
	return fmt.Sprintf("%s: %d of %d done", text, done, len(items))
}
