package console

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// A sagaSample counts the results of the first sagas of an action on many.
type sagaSample struct {
	// Looked is the number of sagas that were checked. More is true if there are others.
	Looked int  `json:"looked"`
	More   bool `json:"more"`
	Can    int  `json:"can"` // sagas that the action would change
	// Cans has them, counted by the steps that the action is on, if it is on steps, and Stays has the others, counted by reason: the
	// largest count first, at most 100 of each.
	Cans  []sagaCount `json:"cans"`
	Stays []sagaCount `json:"stays"`
}

// A sagaCount counts sagas of one result.
type sagaCount struct {
	Why     string `json:"why"`
	Count   int    `json:"count"`
	Example string `json:"example"` // a saga's id
}

const (
	sampled    = 200 // sagas that a preview checks, so that it responds quickly
	mostCounts = 100
)

var errEnough = errors.New("the sample is complete")

// sampleSagas counts the sagas that list passes to add: those with an obstacle, and those without, by can, which may be empty.
func sampleSagas(list func(add func(id, can, obstacle string) error) error) (s sagaSample, err error) {
	cans, stays := make(map[string]*sagaCount), make(map[string]*sagaCount)
	err = list(func(id, can, obstacle string) error {
		if s.Looked == sampled {
			return errEnough
		}
		s.Looked++
		counts, why := stays, obstacle
		if obstacle == "" {
			s.Can++
			counts, why = cans, can
		}
		if why == "" {
			return nil
		}
		if counts[why] == nil {
			counts[why] = &sagaCount{Why: why, Example: id}
		}
		counts[why].Count++
		return nil
	})
	if s.More = errors.Is(err, errEnough); s.More {
		err = nil
	}
	s.Cans, s.Stays = largest(cans), largest(stays)
	return s, err
}

func largest(counts map[string]*sagaCount) []sagaCount {
	all := make([]sagaCount, 0, len(counts))
	for _, one := range counts {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b sagaCount) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Why, b.Why)) })
	return all[:min(len(all), mostCounts)]
}
