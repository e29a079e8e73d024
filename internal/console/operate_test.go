package console

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Six buttons of equal weight would let a person abandon a saga that a retry continues.
func TestAParkedSagaRecommendsOneActionAndSetsTheFinalOneApart(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	page := d.html(at("/saga", "db", "order", "id", d.parked("o-1")))
	require.Equal(t, 1, strings.Count(page, `class="button main"`))
	require.Regexp(t, `class="button main" href="[^"]*do=retry[^"]*">[^<]*</a> <span class="quiet">Recommended: `, page)
	require.Equal(t, 1, strings.Count(page, `class="button danger apart"`))
	require.Regexp(t, `class="button danger apart" href="[^"]*do=abandon`, page)
	require.Greater(t, strings.Index(page, "danger apart"), strings.LastIndex(page, `<a class="button" href`), "it is the last one")

	d.Leads()
	d.FailedRow("shop.none.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION")
	require.Regexp(t, `class="button danger apart" href="[^"]*do=discard`, d.html("/relay"))
}

// A color alone, or a time without its zone, is not enough.
func TestUrgencyIsAWordAndEachTimeHasItsZone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.parked("o-1")
	overview := d.html("/")
	marked := regexp.MustCompile(`<li data-urgency="(\w+)">(.*)`).FindAllStringSubmatch(overview, -1)
	require.NotEmpty(t, marked)
	for _, one := range marked {
		word := map[string]string{"now": "Now", "soon": "Soon", "know": "For information"}[one[1]]
		require.NotEmpty(t, word)
		require.Contains(t, one[2], `<b class="urgency">`+word+`</b>`)
	}
	times := regexp.MustCompile(`<time datetime="[^"]*Z">([^<]*)<`).FindAllStringSubmatch(d.html(at("/saga", "db", "order", "id", id)), -1)
	require.NotEmpty(t, times)
	for _, one := range times {
		require.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC `, one[1])
	}
}
