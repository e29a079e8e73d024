package console

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/saga"
)

// hostile is a text that would be active on a page that does not escape it.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'--{{.}}</textarea><a href="javascript:alert(3)">` + "\u202e" + `x`

// hostileName is hostile without its bidirectional control, which a name may not have.
var hostileName = strings.ReplaceAll(hostile, "\u202e", "")

// Any text of a message, an error, a user or an address is text on a page: it makes no element and no attribute.
func TestTextFromOutsideIsTextOnEveryPage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	letter := stage.Letter{
		Key: hostile, Type: hostile, Class: "permanent", Error: hostile, Payload: `{"` + "k" + `": ` + quoted(hostile) + `}`,
		Headers: []envelope.Header{{Key: "x-" + hostile, Value: []byte(hostile)}},
	}
	id := d.Dead(1, letter).String()
	d.Hold(9, 1, letter)
	d.Expect(hostile, hostile)
	d.Fail("o-"+hostile, "ReserveStock", hostile)
	sagaID := d.Order("o-"+hostile, saga.Parked)
	require.Equal(t, http.StatusOK, d.post("/dead-letter", form("db", "order", "id", id, "do", "edit", "actor", hostileName, "reason", hostile, "payload", letter.Payload)).Code)
	require.Equal(t, http.StatusOK, d.post("/saga/act", form("db", "order", "id", sagaID, "do", "compensate", "actor", hostileName, "reason", hostile)).Code)
	d.Await(sagaID, saga.Compensated)
	other := d.Order("p-"+hostile, saga.Completed)
	row := d.FailedRow(hostile, "parked", hostile)
	d.Leads()
	require.Equal(t, http.StatusOK, d.post("/relay/act", form("db", "order", "do", "pause", "actor", hostileName, "reason", hostile)).Code)
	cause := facts[lettersFacts](d, "/dead-letters/list?db=order").Letters[0].Cause

	for _, address := range []string{
		"/", "/sagas", at("/sagas", "key", hostile, "saga", hostile, "step", hostile, "definition", hostile),
		at("/saga", "db", "order", "id", sagaID), at("/saga", "db", "order", "id", other),
		"/dead-letters", at("/dead-letters", "type", hostile, "key", hostile, "group", hostile), at("/dead-letters/list", "db", "order", "cause", cause),
		at("/dead-letters/act", "db", "order", "do", "redrive", "cause", cause), at("/dead-letter", "db", "order", "id", id),
		"/actions", at("/actions", "actor", hostile), "/expectations", at("/expectations", "name", hostile, "key", hostile, "group", hostile),
		"/schedules", "/rebuilds", "/held", at("/held/key", "db", "order", "place", "shop.billing.commands/0/9"),
		at("/messages", "q", hostile), at("/messages", "q", "charge-1"), at("/messages", "q", "o-"+hostile), "/relay", "/definitions",
		at("/relay/rows", "db", "order", "topic", hostile), at("/relay/row", "db", "order", "id", row), at("/relay/act", "db", "order", "do", "resume"),
		at("/relay/act", "db", "order", "do", "discard", "topic", hostile),
		at("/sign-in", "to", hostile),
		at("/definition/start", "db", "order", "hash", "order", "key", hostile, "input", "{}"),
		at("/definition/start", "db", "order", "hash", "order", "key", "o-"+hostile, "input", "{}"),
	} {
		requireTame(t, address, d.html(address))
	}
	for _, address := range []string{
		at("/saga", "db", hostile), at("/saga", "db", "order", "id", hostile), at("/sagas", "status", hostile), at("/expectations", "status", hostile), at("/sagas", "since", hostile),
		at("/work", "id", hostile), at("/dead-letter", "db", "order", "id", hostile), at("/", "window", hostile), at("/definition", "db", "order", "hash", hostile),
		at("/definition/start", "db", "order", "hash", "order", "key", hostile, "input", hostile, "hop", hostile, "group", hostile, "avro", hostile),
		at("/definition/move", "db", "order", "from", hostile, "to", hostile),
		at("/saga/act", "db", "order", "id", sagaID, "do", hostile), at("/relay/act", "db", "order", "do", hostile, "table", hostile),
	} {
		page := d.page(address)
		require.GreaterOrEqual(t, page.Code, 400, address)
		requireTame(t, address, page.Body.String())
	}
	require.Contains(t, d.html(at("/dead-letter", "db", "order", "id", id)), html.EscapeString("<img src=x onerror=alert(2)>"), "the text is shown")
}

func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// requireTame parses a page as a browser does.
func requireTame(t *testing.T, address, page string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(page))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	scripts, in := 0, ""
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, address)
		switch n := token.(type) {
		case xml.CharData:
			require.NotEqual(t, "script", in, "%s: a script of the page's own", address)
		case xml.EndElement:
			in = ""
		case xml.StartElement:
			if in = n.Name.Local; in == "script" {
				scripts++
			}
			require.NotEqual(t, "style", in, address)
			for _, a := range n.Attr {
				name := a.Name.Local
				require.False(t, strings.HasPrefix(name, "on"), "%s: %s of %s", address, name, in)
				require.NotEqual(t, "style", name, "%s: of %s", address, in)
				if name == "href" || name == "src" || name == "action" {
					require.True(t, a.Value != "" && strings.ContainsAny(a.Value[:1], "/#?") && !strings.HasPrefix(a.Value, "//"), "%s: %s", address, a.Value)
				}
			}
		}
	}
	require.Equal(t, 1, scripts, address)
}
