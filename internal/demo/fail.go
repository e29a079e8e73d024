package demo

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Hops lists the hops of the flow that can refuse, in the order of the flow.
var Hops = []string{"payment", "inventory", "shipping"}

// Fail is the share of orders, 0 to 1, that each hop refuses on purpose. Nil refuses nothing.
type Fail map[string]float64

// ParseFail parses "payment=2%,inventory=3%,shipping=5%". A hop that is not named refuses nothing; for an empty text it returns
// nil.
func ParseFail(text string) (Fail, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	f := Fail{}
	for term := range strings.SplitSeq(text, ",") {
		hop, share, ok := strings.Cut(strings.TrimSpace(term), "=")
		if !ok {
			return nil, fmt.Errorf("%q: want hop=share, such as payment=2%%", term)
		}
		if !slices.Contains(Hops, hop) {
			return nil, fmt.Errorf("%q: no hop %q can refuse: want one of %s", term, hop, strings.Join(Hops, ", "))
		}
		if _, twice := f[hop]; twice {
			return nil, fmt.Errorf("%q: %s is named twice", term, hop)
		}
		number, percent := strings.CutSuffix(share, "%")
		n, err := strconv.ParseFloat(number, 64)
		if !percent || err != nil || !(n >= 0 && n <= 100) { // the comparison also refuses NaN
			return nil, fmt.Errorf("%q: share %q: want 0%% to 100%%", term, share)
		}
		f[hop] = n / 100
	}
	return f, nil
}

// String returns the text that ParseFail parses.
func (f Fail) String() string {
	var terms []string
	for _, hop := range Hops {
		if share, named := f[hop]; named {
			terms = append(terms, hop+"="+strconv.FormatFloat(share*100, 'g', 12, 64)+"%")
		}
	}
	return strings.Join(terms, ",")
}

// Refuses reports whether hop refuses the order. For the same arguments the result is the same in every process.
func (f Fail) Refuses(seed int64, order, hop string) bool {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q", seed, order, hop))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11)/(1<<53) < f[hop]
}
