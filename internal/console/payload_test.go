package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/internal/retention"
)

func TestALargePayloadIsShownInPartAndDownloadedWhole(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	payload := `{"text": "` + strings.Repeat("äöü€", 2<<20) + `"}` // 18 MB
	id := d.Dead(1, stage.Letter{Key: "o-1", Type: "ChargeCard", Class: "permanent", Error: "e", Payload: payload}).String()
	page := d.html(at("/dead-letter", "db", "order", "id", id))
	require.Less(t, len(page), 4*mostShown)
	require.Contains(t, page, "Only the first 64.0 KiB are shown")
	require.True(t, utf8.ValidString(page), "no part of a character")
	w := d.get(at("/dead-letter/payload", "db", "order", "id", id))
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, payload, w.Body.String())
	require.Equal(t, `attachment; filename="`+id+`.json"`, w.Header().Get("Content-Disposition"))
	require.Equal(t, http.StatusNotFound, d.get(at("/dead-letter/payload", "db", "order", "id", id, "edited", "1")).Code)

	edit := `{"text": "` + strings.Repeat("x", 512<<10) + `"}`
	require.Equal(t, http.StatusOK, d.post("/dead-letter", form("db", "order", "id", id, "do", "edit", "reason", "r", "payload", edit)).Code)
	require.JSONEq(t, edit, d.get(at("/dead-letter/payload", "db", "order", "id", id, "edited", "1")).Body.String())
	require.Less(t, len(d.html(at("/dead-letter", "db", "order", "id", id))), 8*mostShown)
}

func TestAPayloadThatIsNotJSONIsDownloadedAsItsBytes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	payload := "\xff" + strings.Repeat("no JSON", 20000)
	id := d.Dead(1, stage.Letter{Key: "o-1", Type: "ChargeCard", Class: "permanent", Error: "e", Payload: payload}).String()
	require.Less(t, len(d.html(at("/dead-letter", "db", "order", "id", id))), 4*mostShown)
	w := d.get(at("/dead-letter/payload", "db", "order", "id", id))
	require.Equal(t, payload, w.Body.String())
	require.Equal(t, "application/octet-stream", w.Header().Get("Content-Type"))
}

// Two spaces for each level make gigabytes of a few kilobytes.
func TestDeeplyNestedJSONIsNotIndented(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const levels = 9000
	payload := strings.Repeat("[", levels) + strings.Repeat("]", levels)
	id := d.Dead(1, stage.Letter{Key: "o-1", Type: "ChargeCard", Class: "permanent", Error: "e", Payload: payload}).String()
	require.Less(t, len(d.html(at("/dead-letter", "db", "order", "id", id))), 4*mostShown)
	require.Less(t, d.get(at("/dead-letter", "db", "order", "id", id)).Body.Len(), 4*mostShown)
	require.Equal(t, "{\n  \"a\": [\n    1\n  ]\n}", pretty(json.RawMessage(`{"a": [1]}`)))
}

func TestOnlySomeRequestsHoldPayloadsAtATime(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.letters()[0]
	address := at("/dead-letter", "db", "order", "id", id)
	d.c.limit = 1 // a moment
	for range mostPayloads {
		d.c.payloads <- struct{}{}
	}
	require.Equal(t, http.StatusServiceUnavailable, d.get(address).Code)
	require.Equal(t, http.StatusServiceUnavailable, d.get(at("/dead-letter/payload", "db", "order", "id", id)).Code)
	d.c.limit = testLimit
	require.Equal(t, http.StatusOK, d.get("/sign-in").Code, "a page without payloads")
	for range mostPayloads {
		<-d.c.payloads
	}
	for range 3 * mostPayloads {
		require.Equal(t, http.StatusOK, d.get(address).Code)
		require.Equal(t, http.StatusOK, d.get(at("/dead-letter/payload", "db", "order", "id", id)).Code)
	}
	require.Empty(t, d.c.payloads, "each turn was ended")
}

func TestATextIsClippedBetweenCharacters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "ab…", "€€€": "€€€", "€€€€": "€€…", strings.Repeat("€", 100): "€€…", "\xff\xff\xff\xff\xff": "\ufffd\ufffd…"} {
		require.Equal(t, want, clip(text, 3), text)
	}
}

// Dead letters may be redriven between their count and the query of their causes.
func TestAnOverviewNeedsNoCauseOfItsDeadLetters(t *testing.T) {
	t.Parallel()
	all := (&databaseFacts{Name: "order", DeadLetters: 2, Outbox: &retention.Stats{Headroom: headroomSoon}}).needs()
	require.Contains(t, all[0].Text, "2 dead letters")
}

func TestFactsThatCannotBeJSONAreAnError(t *testing.T) {
	t.Parallel()
	a := encode(http.StatusOK, map[string]any{"at": time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)})
	require.Equal(t, http.StatusInternalServerError, a.status)
	require.Contains(t, a.text.String(), "cannot be written as JSON")
}

// Each value on a line of its own takes five times the bytes of "0,", and there are several copies of an answer.
func TestLargeJSONIsNotIndented(t *testing.T) {
	t.Parallel()
	large := json.RawMessage("[" + strings.Repeat("0,", 4<<20) + "0]")
	require.Equal(t, string(large), pretty(large))
	d := newDesk(t)
	id := d.Dead(1, stage.Letter{Key: "o-1", Type: "ChargeCard", Class: "permanent", Error: "e", Payload: string(large)}).String()
	w := d.get(at("/dead-letter", "db", "order", "id", id))
	require.Equal(t, http.StatusOK, w.Code)
	require.Less(t, w.Body.Len(), len(large)+mostShown)
}
