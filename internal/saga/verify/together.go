package verify

import (
	"fmt"
	"reflect"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// Together checks definitions against each other, and does not check each one by itself. It returns the findings by definition; a
// conflict of two is reported at the later one. A nil definition has none.
func Together(ds []*saga.Definition) [][]Finding {
	found := make([][]Finding, len(ds))
	versions := make(map[string]*saga.Definition)
	type owner struct {
		d *saga.Definition
		policy
	}
	owners := make(map[edge]owner)
	for i, d := range ds {
		if d == nil {
			continue
		}
		if other, twice := versions[d.String()]; twice && other.Hash() != d.Hash() {
			found[i] = append(found[i], Finding{Rule: "same-version", Severity: rule.Error, Path: "version",
				Text: fmt.Sprintf("%s is another definition elsewhere; count the version up", d)})
		}
		versions[d.String()] = d
		for k, st := range d.Spec().Steps {
			n := node{Step: st, path: fmt.Sprintf("steps[%d]", k), sends: st.Command != nil || st.Call != nil}
			if !n.sends {
				continue
			}
			for _, p := range policiesOf(n) {
				first, twice := owners[p.edge]
				if !twice {
					owners[p.edge] = owner{d, p.policy}
				} else if first.d != d && first.d.Spec().Saga != d.Spec().Saga && !reflect.DeepEqual(first.retry, p.retry) {
					found[i] = append(found[i], Finding{Rule: "retry-owners", Severity: rule.Warning, Path: p.path + ".retry",
						Text: fmt.Sprintf("%s to %s is tried in another way by saga %s; say the same in both places", p.typ, p.hop, first.d)})
				}
			}
		}
	}
	return found
}
