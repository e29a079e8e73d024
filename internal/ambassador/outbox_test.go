package ambassador_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/testkit"
)

func takes(t *testing.T, change ...func(*ambassador.OutboxConfig)) (*ambassador.Outbox, *pgxpool.Pool) {
	t.Helper()
	cfg := ambassador.OutboxConfig{Pool: testkit.Database(t), Source: "drone", Log: testkit.Logger(t)}
	for _, c := range change {
		c(&cfg)
	}
	o, err := ambassador.NewOutbox(cfg)
	require.NoError(t, err)
	return o, cfg.Pool
}

func post(h http.Handler, body string, header ...string) (status int, said string, got http.Header) {
	r := httptest.NewRequest(http.MethodPost, "/outbox", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String()), w.Header()
}

func message(id, payload string) string {
	return fmt.Sprintf(`{"id":%q,"topic":"order.courier.commands","key":"o-1","type":"CollectParcel","payload":%s,`+
		`"correlation_id":"flow-1","causation_id":"cmd-1","headers":{"ce_outcome":"success","x":"é"}}`, id, payload)
}

func stored(t *testing.T, pool *pgxpool.Pool) (all []envelope.Message) {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT "+outboxrow.Columns+" FROM troupe.outbox ORDER BY position")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var r outboxrow.Row
		require.NoError(t, rows.Scan(r.Fields()...))
		m, err := r.Message(outboxrow.Defaults{})
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

func TestAPostedMessageStandsInTheOutboxOnce(t *testing.T) {
	t.Parallel()
	o, pool := takes(t)
	id := envelope.NewID()
	var mu sync.Mutex
	answered := make(map[int]int)
	var all sync.WaitGroup
	for range 20 { // some get busy and post again
		all.Go(func() {
			for {
				status, _, _ := post(o, message(id, `{"n": 1}`))
				if status == http.StatusServiceUnavailable {
					continue
				}
				mu.Lock()
				answered[status]++
				mu.Unlock()
				return
			}
		})
	}
	all.Wait()
	require.Equal(t, map[int]int{201: 1, 200: 19}, answered)
	status, said, _ := post(o, message(id, `{"n":2}`))
	require.Equal(t, 409, status, said)
	ms := stored(t, pool)
	require.Len(t, ms, 1)
	m := ms[0]
	require.Equal(t, []string{id, "order.courier.commands", "o-1", "CollectParcel", `{"n": 1}`, "flow-1", "cmd-1", "drone", "application/json", "success"},
		[]string{m.ID, m.Topic, string(m.Key), m.Type, string(m.Payload), m.CorrelationID, m.CausationID, m.Source, m.ContentType, string(m.Outcome)})
	require.Equal(t, []envelope.Header{{Key: "x", Value: []byte("é")}}, m.Extra)

	forgotten, err := o.Forget(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Zero(t, forgotten)
	_, err = pool.Exec(t.Context(), "UPDATE troupe.outbox_posts SET at = at - interval '2 hours'")
	require.NoError(t, err)
	forgotten, err = o.Forget(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Equal(t, int64(1), forgotten)
}

func TestInvalidPostsAreRefused(t *testing.T) {
	t.Parallel()
	o, pool := takes(t, func(c *ambassador.OutboxConfig) {
		c.Topics, c.Token = []string{"order.courier.commands"}, "a-long-enough-token"
	})
	id := envelope.NewID()
	const bearer = "Bearer a-long-enough-token"
	for name, c := range map[string]struct {
		body   string
		header []string
		status int
		says   string
	}{
		"no token":        {message(id, "1"), []string{"Authorization", ""}, 401, "Authorization"},
		"another token":   {message(id, "1"), []string{"Authorization", "Bearer wrong"}, 401, "Authorization"},
		"a form":          {message(id, "1"), []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/json"},
		"no JSON":         {"{", nil, 400, "no such JSON"},
		"two values":      {message(id, "1") + "{}", nil, 400, "bytes behind"},
		"a bracket":       {message(id, "1") + "}", nil, 400, "bytes behind"},
		"a type of ours":  {strings.Replace(message(id, "1"), `"type":"`, `"type":"troupe.`, 1), nil, 400, "Troupe's own"},
		"a forged source": {strings.Replace(message(id, "1"), `"x":"é"`, `"CE-Source":"payment"`, 1), nil, 400, "cannot set it"},
		"a forged saga":   {strings.Replace(message(id, "1"), `"x":"é"`, `"ce_sagaid":"s-1"`, 1), nil, 400, "cannot set it"},
		"a retry of ours": {strings.Replace(message(id, "1"), `"x":"é"`, `"__troupe.retry.group":"g"`, 1), nil, 400, "cannot set it"},
		"no bearer":       {message(id, "1"), []string{"Authorization", "a-long-enough-token"}, 401, "Authorization"},
		"an unknown key":  {`{"id":"` + id + `","lsn":1}`, nil, 400, "unknown field"},
		"no id":           {message("o-1", "1"), nil, 400, "want a UUID"},
		"no payload":      {`{"id":"` + id + `","topic":"order.courier.commands","type":"A"}`, nil, 400, "want topic, type and payload"},
		"another topic":   {strings.Replace(message(id, "1"), "courier", "payment", 1), nil, 403, "want one of order.courier.commands"},
		"a bad topic":     {strings.Replace(message(id, "1"), "order.courier", "../courier", 1), nil, 400, "no topic of Kafka's"},
		"a zero byte":     {strings.Replace(message(id, "1"), "o-1", `o\u0000`, 1), nil, 400, "no zero byte"},
		"a long key":      {strings.Replace(message(id, "1"), "o-1", strings.Repeat("k", 2000), 1), nil, 400, "at most 1024"},
		"a large payload": {message(id, `"`+strings.Repeat("x", 1_000_001)+`"`), nil, 413, "larger than the outbox takes"},
		"a huge body":     {message(id, `"`+strings.Repeat("x", 2_000_000)+`"`), nil, 413, "more than"},
		"many headers":    {strings.Replace(message(id, "1"), `"x":"é"`, `"x":"`+strings.Repeat("y", 70_000)+`"`, 1), nil, 400, "headers"},
	} {
		status, said, _ := post(o, c.body, append([]string{"Authorization", bearer}, c.header...)...)
		require.Equal(t, c.status, status, "%s: %s", name, said)
		require.Contains(t, said, c.says, name)
	}
	require.Empty(t, stored(t, pool))
	status, said, _ := post(o, message(id, "1"), "Authorization", bearer)
	require.Equal(t, 201, status, said)
	require.JSONEq(t, `{"id":"`+id+`"}`, said)
	for range door.AttemptsAtOnce {
		_, _, _ = post(o, message(id, "1"), "Authorization", "Bearer wrong")
	}
	status, said, _ = post(o, message(id, "1"), "Authorization", bearer)
	require.Equal(t, 429, status, said)
}

// TestABusyOutboxSaysSo: the number of requests that are read at once is bounded, and so is the memory.
func TestABusyOutboxSaysSo(t *testing.T) {
	t.Parallel()
	o, pool := takes(t, func(c *ambassador.OutboxConfig) { c.Writers = 1 })
	reading := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &watched{ReadCloser: r.Body, reading: reading}
		o.ServeHTTP(w, r)
	}))
	defer server.Close()
	body, slow := io.Pipe()
	first := make(chan int, 1)
	go func() {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL, body)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			first <- 0
			return
		}
		_ = response.Body.Close()
		first <- response.StatusCode
	}()
	text := message(envelope.NewID(), "1")
	_, err := io.WriteString(slow, text[:10])
	require.NoError(t, err)
	<-reading // so it is being read, and keeps its slot until all of it is read
	status, said, header := post(o, message(envelope.NewID(), "2"))
	require.Equal(t, 503, status, said)
	require.Equal(t, "1", header.Get("Retry-After"))
	_, err = io.WriteString(slow, text[10:])
	require.NoError(t, err)
	require.NoError(t, slow.Close())
	require.Equal(t, 201, <-first)
	require.Len(t, stored(t, pool), 1)
	http.DefaultClient.CloseIdleConnections()
}

// watched is a body that reports when it is read.
type watched struct {
	io.ReadCloser
	reading chan struct{}
	once    sync.Once
}

func (w *watched) Read(b []byte) (int, error) {
	w.once.Do(func() { close(w.reading) })
	return w.ReadCloser.Read(b)
}

func TestAnOutboxWithoutADatabaseAsksToComeAgain(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody:hunter2@127.0.0.1:1/nowhere")
	require.NoError(t, err)
	defer pool.Close()
	o, err := ambassador.NewOutbox(ambassador.OutboxConfig{Pool: pool})
	require.NoError(t, err)
	status, said, header := post(o, message(envelope.NewID(), "1"))
	require.Equal(t, 503, status)
	require.Equal(t, "1", header.Get("Retry-After"))
	var body map[string]string
	require.NoError(t, json.Unmarshal([]byte(said), &body))
	require.Equal(t, "the outbox cannot be written now: post it again", body["error"])
	_, err = ambassador.NewOutbox(ambassador.OutboxConfig{})
	require.ErrorContains(t, err, "without a pool")
}
