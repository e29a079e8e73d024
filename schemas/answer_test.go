package schemas_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/schemas"
)

// zeros writes until the reader closes the connection, at most 1 GB, and counts the bytes.
func zeros(status int, written *atomic.Int64) http.HandlerFunc {
	block := make([]byte, 1<<20)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		for range 1 << 10 {
			n, err := w.Write(block)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

func TestAnAnswerOfGigabytesIsNotRead(t *testing.T) {
	for _, status := range []int{200, 404, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var written atomic.Int64
			server := httptest.NewServer(zeros(status, &written))
			defer server.Close()
			address := strings.Replace(server.URL, "http://", "http://me:s3cr@", 1)
			own := &http.Client{}
			for name, opts := range map[string][]sr.ClientOpt{
				"by default":                nil,
				"with a client of its user": {sr.HTTPClient(own)},
			} {
				r, err := schemas.NewRegistry(address, opts...)
				require.NoError(t, err)
				c, err := schemas.New(t.Context(), schemas.Config{Registry: r})
				require.NoError(t, err)
				ask := map[string]func() error{
					"a payload":     func() error { _, _, err := c.ToJSON(t.Context(), []byte{0, 0, 0, 0, 7, 0}); return err },
					"a subject":     func() error { _, _, err := r.Latest(t.Context(), "s"); return err },
					"versions":      func() error { _, err := r.Versions(t.Context(), "s"); return err },
					"a level":       func() error { _, err := r.Level(t.Context(), "s"); return err },
					"acceptance":    func() error { _, _, err := r.Accepts(t.Context(), "s", `"string"`); return err },
					"a lookup":      func() error { _, err := r.Lookup(t.Context(), "s", `"string"`); return err },
					"registering":   func() error { _, err := r.Register(t.Context(), "s", `"string"`); return err },
					"a deletion":    func() error { return r.DeleteSubjects(t.Context(), "s") },
					"another by id": func() error { _, err := r.ByID(t.Context(), 8); return err },
				}
				for what, ask := range ask {
					err := ask()
					require.ErrorContains(t, err, server.URL, "%s, %s", name, what)
					require.ErrorContains(t, err, fmt.Sprintf("the answer is too large: more than %d bytes", 4<<20), "%s, %s", name, what)
					require.NotContains(t, err.Error(), "s3cr")
					require.False(t, errors.Is(err, envelope.ErrPayload), "the registry is at fault: %v", err)
				}
			}
			require.Nil(t, own.Transport, "the user's client is as it was")
			// The kernel's buffers take some megabytes of each answer.
			require.Less(t, written.Load(), int64(18*64<<20))
		})
	}
}

func TestAnAnswerThatGoesOnForEverEndsWithTheContext(t *testing.T) {
	began := make(chan struct{}, 1)
	r, _ := serve(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, " ")
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		<-req.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	_, err := r.ByID(ctx, 7)
	require.ErrorIs(t, err, context.Canceled)
}

// A schema above the limits is refused, whether it comes from the registry or from a user's own files.
func TestASchemaHasALimit(t *testing.T) {
	fields := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"type":"record","name":"R","namespace":"n","fields":[`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"name":"f%d","type":"int"}`, i)
		}
		return b.String() + "]}"
	}
	symbols := `{"type":"enum","name":"E","symbols":["s0"` + strings.Repeat(`,"s"`, avsc.MaxSchemaTypes) + `]}`
	deep := strings.Repeat(`{"type":"array","items":`, 700) + `"int"` + strings.Repeat("}", 700)
	for name, row := range map[string]struct{ avsc, want string }{
		"many bytes":    {`{"type":"string","doc":"` + strings.Repeat("x", avsc.MaxSchema) + `"}`, "bytes, more than 1048576"},
		"many fields":   {fields(avsc.MaxSchemaTypes), "more than 10000 fields and types"},
		"many symbols":  {symbols, "more than 10000 fields and types"},
		"many branches": {`["int"` + strings.Repeat(`,"int"`, avsc.MaxSchemaTypes) + `]`, "more than 10000 fields and types"},
		"many levels":   {deep, "more than 600 levels of JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := json.Marshal(map[string]any{"id": 7, "schema": row.avsc, "version": 1, "subject": "s"})
			require.NoError(t, err)
			r, _ := serve(t, says(200, string(answer)))
			_, err = r.ByID(t.Context(), 7)
			require.ErrorIs(t, err, schemas.ErrNoSchema)
			require.ErrorContains(t, err, row.want)
			c, err := schemas.New(t.Context(), schemas.Config{Registry: r})
			require.NoError(t, err)
			_, _, err = c.ToJSON(t.Context(), []byte{0, 0, 0, 0, 8, 0})
			require.ErrorIs(t, err, envelope.ErrPayload)
			require.ErrorContains(t, err, row.want)
			require.Less(t, len(err.Error()), 300)

			_, err = avsc.Subject(row.avsc)
			require.ErrorContains(t, err, row.want)
		})
	}

	subject, err := avsc.Subject(fields(4000))
	require.NoError(t, err)
	require.Equal(t, "n.R", subject)
}

// TestAPasswordDoesNotFollowARedirectOfTheRegistry: Go sent it to another port of the same host, and from https to plain http.
func TestAPasswordDoesNotFollowARedirectOfTheRegistry(t *testing.T) {
	var received atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	defer elsewhere.Close()
	registry := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/here":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		case r.URL.Path == "/schemas/ids/8":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		default:
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}
	}))
	defer registry.Close()
	address := strings.Replace(registry.URL, "https://", "https://me:s3cr@", 1)
	trusted := sr.DialTLSConfig(registry.Client().Transport.(*http.Transport).TLSClientConfig)
	r, err := schemas.NewRegistry(address, trusted)
	require.NoError(t, err)
	_, err = r.ByID(t.Context(), 7)
	require.ErrorContains(t, err, "the registry redirects to another address")
	_, err = r.Register(t.Context(), "s", `"string"`)
	require.ErrorContains(t, err, "the registry redirects to another address")
	require.NotContains(t, err.Error(), "s3cr")
	r, err = schemas.NewRegistry(address, trusted) // the first one remembers the failure
	require.NoError(t, err)
	_, err = r.ByID(t.Context(), 8)
	require.ErrorContains(t, err, "the registry redirects again and again")
	require.Zero(t, received.Load())
}
