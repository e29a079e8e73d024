package jsonschema

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// rules checks four keywords of one schema in place of the library: items, propertyNames, uniqueItems and enum. The library collects an error with a
// path for each item and each name that does not fit: two megabytes of "0,", two kilobytes when they are compressed, became gigabytes. And it
// compares items whose hashes are equal, which a producer can arrange for a hundred thousand items: one message took minutes. It compares a number
// with each number of an enum as a fraction: a megabyte of the last one of 250 took two minutes.
//
// Each application of a schema counts for the budget of the payload. The library does not call rules for an alternative that fails by its type or
// const, so all alternatives count where they are tried.
type rules struct {
	budget       *budget
	alternatives *budget
	tried        budget              // the schemas that are tried for a value, as alternatives
	enum         map[string]struct{} // the texts of the permitted values, by identify; nil: the schema has none, or the library checks them
	permitted    []any               // the values of enum
	longest      int                 // the length of the longest text of enum
	items        *jsonschema.Schema  // of the items from first on; nil: the schema has none
	first        int
	names        *jsonschema.Schema // of the names of properties; nil: the schema has none
	unique       bool
}

// take moves the keywords of all schemas that are reachable from s to their rules.
func take(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	for _, inner := range within(s) {
		take(inner, seen)
	}
	for _, extension := range s.Extensions {
		if r, is := extension.(*rules); is {
			r.take(s)
		}
	}
}

func (r *rules) take(s *jsonschema.Schema) {
	for _, alternative := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf) {
		r.tried++
		seen := make(map[*jsonschema.Schema]bool)
		for ref := alternative.Ref; ref != nil && !seen[ref]; ref = ref.Ref {
			seen[ref] = true
			r.tried++
		}
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum.Values, isComposite) {
		r.enum, r.permitted = make(map[string]struct{}, len(s.Enum.Values)), s.Enum.Values
		for _, value := range s.Enum.Values {
			text, _ := value.(string)
			r.longest = max(r.longest, len(text))
			r.enum[identity(value)] = struct{}{}
		}
		s.Enum = nil
	}
	r.unique, s.UniqueItems = s.UniqueItems, false
	r.names, s.PropertyNames = s.PropertyNames, nil
	if s.DraftVersion >= 2020 {
		r.items, r.first = s.Items2020, len(s.PrefixItems)
		s.Items2020 = nil
		return
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		r.items, s.Items = items, nil
	case []*jsonschema.Schema:
		r.first = len(items)
	}
	if rest, is := s.AdditionalItems.(*jsonschema.Schema); is && r.items == nil {
		r.items, s.AdditionalItems = rest, nil
	}
}

// within returns the schemas that s refers to.
func within(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems, slices.Collect(maps.Values(s.Properties)),
		slices.Collect(maps.Values(s.PatternProperties)), slices.Collect(maps.Values(s.DependentSchemas)))
	all = append(all, s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020,
		s.UnevaluatedItems, s.ContentSchema)
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	others := append(slices.Collect(maps.Values(s.Dependencies)), s.AdditionalProperties, s.Items, s.AdditionalItems)
	for _, other := range others {
		switch other := other.(type) {
		case *jsonschema.Schema:
			all = append(all, other)
		case []*jsonschema.Schema:
			all = append(all, other...)
		}
	}
	return all
}

// budgetSpent is the value of the panic that ends a check: the library has no other way to stop.
type budgetSpent struct{}

// Validate implements jsonschema.SchemaExt. It stops at the first maxMistakes items or names that do not fit.
func (r *rules) Validate(ctx *jsonschema.ValidatorContext, value any) {
	if r.enum != nil {
		text, _ := value.(string)
		permitted := !isComposite(value) && len(text) <= r.longest // identity copies the text
		if permitted {
			_, permitted = r.enum[identity(value)]
		}
		if !permitted {
			ctx.AddError(&kind.Enum{Got: value, Want: r.permitted})
			return
		}
	}
	*r.budget--
	*r.alternatives -= r.tried
	if *r.budget < 0 || *r.alternatives < 0 {
		panic(budgetSpent{})
	}
	switch v := value.(type) {
	case []any:
		if r.unique {
			if first, second, found := repeated(v); found {
				ctx.AddError(&kind.UniqueItems{Duplicates: [2]int{first, second}})
			}
		}
		wrong := 0
		for i := r.first; r.items != nil && i < len(v) && wrong < maxMistakes; i++ {
			if err := ctx.Validate(r.items, v[i], []string{strconv.Itoa(i)}); err != nil {
				ctx.AddErr(err)
				wrong++
			}
		}
	case map[string]any:
		wrong := 0
		for name := range v {
			if r.names == nil || wrong == maxMistakes {
				break
			}
			if err := ctx.Validate(r.names, name, []string{name}); err != nil {
				ctx.AddErr(err)
				wrong++
			}
		}
	}
}

// repeated returns the indexes of two equal items of a list. Numbers are equal by value, as 1 and 1.0 are.
func repeated(list []any) (first, second int, found bool) {
	seen := make(map[[sha256.Size]byte]int, len(list))
	digest := sha256.New()
	for n, item := range list {
		digest.Reset()
		identify(digest, item)
		sum := [sha256.Size]byte(digest.Sum(nil))
		if before, is := seen[sum]; is {
			return before, n, true
		}
		seen[sum] = n
	}
	return 0, 0, false
}

func isComposite(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// identity returns what identify writes.
func identity(value any) string {
	var text strings.Builder
	identify(&text, value)
	return text.String()
}

// identify writes bytes that are the same for equal values only. Each length is before its text.
func identify(w io.Writer, value any) {
	switch v := value.(type) {
	case map[string]any:
		_, _ = fmt.Fprintf(w, "o%d:", len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			identify(w, name)
			identify(w, v[name])
		}
	case []any:
		_, _ = fmt.Fprintf(w, "a%d:", len(v))
		for _, item := range v {
			identify(w, item)
		}
	case string:
		_, _ = fmt.Fprintf(w, "s%d:%s", len(v), v)
	case json.Number:
		n, ok := new(big.Rat).SetString(v.String()) // read has limited its digits
		if !ok {
			n = new(big.Rat)
		}
		num, denom := n.Num().Bytes(), n.Denom().Bytes()
		_, _ = fmt.Fprintf(w, "n%d:%d:%s%d:%s", n.Sign(), len(num), num, len(denom), denom)
	default: // a boolean, or null
		_, _ = fmt.Fprintf(w, "%v;", v)
	}
}
