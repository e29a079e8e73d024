package schemas_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// serve returns a registry that sends the same response to every request, and counts the requests.
func serve(t *testing.T, answer http.HandlerFunc) (*schemas.Registry, *atomic.Int64) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		answer(w, req)
	}))
	t.Cleanup(server.Close)
	r, err := schemas.NewRegistry(server.URL)
	require.NoError(t, err)
	return r, &asked
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestOnlyTheRegistryItselfMakesAnIdUnknown(t *testing.T) {
	page := "<html>" + strings.Repeat("gateway ", 1000)
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		poison bool
	}{
		"it does not have the id":        {says(404, `{"error_code":40403,"message":"Schema 7 not found"}`), true},
		"it has protobuf there":          {says(200, `{"schemaType":"PROTOBUF","schema":"syntax = \"proto3\";"}`), true},
		"it has references there":        {says(200, `{"schema":"\"string\"","references":[{"name":"a","subject":"a","version":1}]}`), true},
		"it has something unreadable":    {says(200, `{"schema":"{\"type\":\"nothing\"}"}`), true},
		"something else is there":        {says(404, page), false},
		"the service is not there":       {says(404, `{"error_code":404,"message":"HTTP 404 Not Found"}`), false},
		"we are not let in":              {says(401, `{"error_code":401,"message":"Unauthorized"}`), false},
		"too many requests":              {says(429, ``), false},
		"it cannot answer":               {says(500, `{"error_code":50001,"message":"Error in the backend data store"}`), false},
		"a proxy cannot reach it":        {says(502, page), false},
		"it answers with no schema":      {says(200, `{}`), false},
		"it answers with no JSON":        {says(200, page), false},
		"it ends in the middle":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
		"it sends us round in a circle":  {func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, req.URL.Path, http.StatusFound) }, false},
		"it calls a login page an error": {says(403, page), false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := serve(t, row.answer)
			c, err := schemas.New(context.Background(), schemas.Config{Registry: r})
			require.NoError(t, err)
			_, _, err = c.ToJSON(context.Background(), []byte{0, 0, 0, 0, 7, 0})
			require.Error(t, err)
			require.Equal(t, row.poison, errors.Is(err, envelope.ErrPayload), "%v", err)
			require.Contains(t, err.Error(), "schema id 7")
			require.Less(t, len(err.Error()), 500)
		})
	}
}

// A response of four megabytes has a hundred thousand references, and each of a hundred schemas could bring as many.
func TestASchemaWithTooManyReferencesIsRefusedAtOnce(t *testing.T) {
	references := strings.Repeat(`{"name":"n","subject":"s","version":1},`, 1000)
	r, asked := serve(t, says(200, `{"schemaType":"JSON","schema":"{}","references":[`+references+`{"name":"m","subject":"s","version":1}]}`))
	c, err := schemas.New(context.Background(), schemas.Config{Registry: r})
	require.NoError(t, err)
	_, _, err = c.ToJSON(context.Background(), []byte{0, 0, 0, 0, 7, 0})
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "it refers to more than 100 schemas")
	require.EqualValues(t, 1, asked.Load())
}

func TestDecodeGivesUpOnASilentRegistry(t *testing.T) {
	var silent atomic.Bool
	fake := srfake.NewRegistry().Handler()
	release := make(chan struct{})
	r, asked := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if silent.Load() {
			select {
			case <-release:
			case <-req.Context().Done():
			}
			return
		}
		fake.ServeHTTP(w, req)
	})
	defer close(release)
	c, err := schemas.New(context.Background(), schemas.Config{
		Registry: r, Types: []schemas.Type{schemas.Bind[parcel](parcelSchema)}, Timeout: time.Second,
	})
	require.NoError(t, err)
	now := time.Now()
	r.SetClock(func() time.Time { return now }) // a later caller gets the same result
	good, err := c.Encode("t", parcel{"p", 1})
	require.NoError(t, err)
	before := asked.Load()
	silent.Store(true)

	// Many messages with unknown ids at once: one caller sends a request, and all use its result.
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			err := c.Decode(envelope.Message{Payload: []byte{0, 0, 0, 1, byte(i), 0}}, &parcel{})
			if err == nil || errors.Is(err, envelope.ErrPayload) {
				t.Errorf("want an error that says to try again, got %v", err)
			}
		})
	}
	wg.Wait()
	testkit.Wait(t, "the one question to arrive", func() (bool, error) { return asked.Load() > before, nil })
	require.EqualValues(t, 1, asked.Load()-before)
	require.NoError(t, c.Decode(envelope.Message{Payload: good.Payload}, &parcel{}), "a known schema needs no registry")
}

func TestAFailureOfTheRegistryIsForgotten(t *testing.T) {
	var status atomic.Int64
	r, asked := serve(t, func(w http.ResponseWriter, req *http.Request) {
		switch status.Load() {
		case 0:
			panic(http.ErrAbortHandler)
		case 404:
			says(404, `{"error_code":40403,"message":"no"}`)(w, req)
		case 500:
			says(500, `no`)(w, req)
		default:
			says(200, `{"schema":"\"string\""}`)(w, req)
		}
	})
	now := time.Now()
	r.SetClock(func() time.Time { return now })
	ctx := context.Background()
	try := func(id uint32) error { _, err := r.ByID(ctx, id); return err }
	steps := []struct {
		after  time.Duration
		status int64
		id     uint32
		ok     bool
		asks   int64
	}{
		{0, 0, 1, false, 1},                        // down
		{0, 200, 2, false, 0},                      // up again, but no request is sent yet, for any id
		{time.Second, 200, 2, true, 1},             // a new request
		{0, 404, 3, false, 1},                      // unknown
		{0, 404, 4, false, 1},                      // which does not affect other ids
		{0, 200, 3, false, 0},                      // still unknown
		{time.Second, 404, 3, false, 1},            // a new request, in case it was late
		{time.Second, 404, 3, false, 1},            //
		{time.Second, 404, 3, false, 1},            //
		{time.Second, 404, 3, false, 1},            // five times
		{9 * time.Second, 200, 3, false, 0},        // still unknown
		{time.Second, 200, 3, true, 1},             // a new request
		{0, 500, 5, false, 1},                      // an error about one id
		{0, 200, 6, true, 1},                       // does not prevent a request for another
		{0, 200, 5, false, 0},                      //
		{time.Second, 200, 5, true, 1},             // a new request
		{time.Hour, 0, 5, true, 0},                 // the schema of an id never changes
		{time.Hour, 200, 0x7fffffff + 1, false, 0}, // no registry has that many
		{time.Hour, 200, 0x7fffffff, true, 1},      //
	}
	for i, s := range steps {
		now = now.Add(s.after)
		status.Store(s.status)
		before := asked.Load()
		err := try(s.id)
		require.Equal(t, s.ok, err == nil, "step %d: %v", i, err)
		require.Equal(t, s.asks, asked.Load()-before, "step %d", i)
		if err != nil {
			require.Contains(t, err.Error(), fmt.Sprint("schema id ", s.id), "step %d", i)
		}
	}
}

func TestACallerThatLeavesIsNoFailure(t *testing.T) {
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	first := true
	r, _ := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if first {
			first = false
			arrived <- struct{}{}
			<-release
		}
		says(200, `{"schema":"\"string\""}`)(w, req)
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-arrived; cancel() }()
	_, err := r.ByID(ctx, 7)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	_, err = r.ByID(context.Background(), 7)
	require.NoError(t, err)
}

func TestIdsAreRememberedWithinBounds(t *testing.T) {
	r, asked := serve(t, says(200, `{"schema":"\"string\""}`))
	c, err := schemas.New(context.Background(), schemas.Config{Registry: r})
	require.NoError(t, err)
	read := func(id int) {
		_, _, err := c.ToJSON(context.Background(), []byte{0, 0, 0, byte(id >> 8), byte(id), 0})
		require.NoError(t, err)
	}
	for range 3 {
		read(1)
	}
	require.EqualValues(t, 1, asked.Load())
	for id := range 2 * avsc.MaxCached {
		read(id + 1)
	}
	before := asked.Load()
	for id := range 2 * avsc.MaxCached {
		read(id + 1)
	}
	require.GreaterOrEqual(t, asked.Load()-before, int64(avsc.MaxCached)/2, "nothing is pushed out")
}

func TestTheLatestVersionIsAskedForOnceAMinute(t *testing.T) {
	ctx := context.Background()
	r, server := newRegistry(t)
	now := time.Now()
	r.SetClock(func() time.Time { return now })
	old, err := r.Register(ctx, "s", `"string"`)
	require.NoError(t, err)
	id, avsc, err := r.Latest(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, `"string"`, avsc)
	require.Equal(t, old, id)
	fresh, _, err := server.RegisterSchema("s", sr.Schema{Schema: `"bytes"`})
	require.NoError(t, err)
	now = now.Add(59 * time.Second)
	id, _, err = r.Latest(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, old, id)
	now = now.Add(time.Second)
	id, avsc, err = r.Latest(ctx, "s")
	require.NoError(t, err)
	require.EqualValues(t, fresh, id)
	require.Equal(t, `"bytes"`, avsc)
	_, _, err = r.Latest(ctx, "nobody's")
	require.ErrorIs(t, err, schemas.ErrNoSchema)
}

func TestNewFailsAsTheRegistryDoes(t *testing.T) {
	types := []schemas.Type{schemas.Bind[parcel](parcelSchema)}
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"incompatible":  {says(409, `{"error_code":409,"message":"Schema being registered is incompatible"}`), "status 409: Schema being registered is incompatible"},
		"not let in":    {says(401, ``), "status 401"},
		"out of order":  {says(503, strings.Repeat("x", 9999)), "status 503: xxx"},
		"no id":         {says(200, `{}`), "schema id 0"},
		"an id too big": {says(200, `{"id":4294967297}`), "schema id 4294967297"},
	} {
		r, _ := serve(t, row.answer)
		_, err := schemas.New(context.Background(), schemas.Config{Registry: r, Types: types})
		require.ErrorContains(t, err, row.want, name)
		require.ErrorContains(t, err, "shop.Parcel", name)
		require.Less(t, len(err.Error()), 500, name)
		var answer *sr.ResponseError
		require.Equal(t, !strings.Contains(row.want, "id"), errors.As(err, &answer), name)
	}
}

func TestDeletedSubjectsAreGone(t *testing.T) {
	ctx := context.Background()
	r, server := newRegistry(t)
	for _, s := range []string{"a", "b", "c/d"} {
		_, err := r.Register(ctx, s, `"string"`)
		require.NoError(t, err)
	}
	require.NoError(t, r.DeleteSubjects(ctx, "a", "never there", "c/d"))
	require.NoError(t, r.DeleteSubjects(ctx, "a"))
	require.False(t, server.SubjectExists("a"))
	require.True(t, server.SubjectExists("b"))
	client, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	left, err := client.Subjects(sr.WithParams(ctx, sr.ShowDeleted))
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, left, "none is left in the registry's memory of deleted ones")
	_, err = r.Lookup(ctx, "a", `"string"`)
	require.ErrorIs(t, err, schemas.ErrNoSchema)
	_, err = r.Lookup(ctx, "b", `"string"`)
	require.NoError(t, err)

	down, _ := serve(t, says(500, "no"))
	err = down.DeleteSubjects(ctx, "a", "b")
	require.ErrorContains(t, err, "subject a")
	require.ErrorContains(t, err, "subject b")
}

func TestPasswordsAreSentAndNeverShown(t *testing.T) {
	const password = "s3cr%2Fet"
	r, server := newRegistry(t)
	withPassword := strings.Replace(r.String(), "http://", "http://me:"+password+"@", 1)
	var got string
	server.Intercept(func(_ http.ResponseWriter, req *http.Request) bool {
		got = req.Header.Get("Authorization")
		return false
	})
	r, err := schemas.NewRegistry(withPassword)
	require.NoError(t, err)
	_, err = r.Register(context.Background(), "s", `"string"`)
	require.NoError(t, err)
	require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("me:s3cr/et")), got)

	server.Close()
	_, err = r.Register(context.Background(), "s", `"string"`)
	for _, text := range []string{err.Error(), r.String(), fmt.Sprintf("%v %+v %s", r, r, r)} {
		require.NotContains(t, text, "s3cr")
		require.NotContains(t, text, "me:")
	}
	for _, bad := range []string{
		"http://me:s3cr@ex ample", "http://me:s3cr@host:port", "ftp://me:s3cr@host", "me:s3cr@host:8081", "http://", "",
		"https://me:s3cr@host/?token=s3cr", "http://me:s3cr@registry.example:8081", "http://me:s3cr@10.0.0.1", "://s3cr",
	} {
		_, err := schemas.NewRegistry(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "s3cr", bad)
	}
	for _, good := range []string{"http://registry:8080/apis/ccompat/v7", "https://me:s3cr@registry.example", "http://me:s3cr@[::1]:8081", "http://me:s3cr@localhost"} {
		_, err := schemas.NewRegistry(good)
		require.NoError(t, err, good)
	}
}

// A server in front of the registry may answer with the request, header included.
func TestAnErrorOfTheRegistryDoesNotRepeatThePassword(t *testing.T) {
	const password = "s3cr3t p/w"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, given, _ := req.BasicAuth()
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, user, " ", given, " ", url.QueryEscape(given), " ", req.Header)
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	address.User = url.UserPassword("relay", password)
	r, err := schemas.NewRegistry(address.String())
	require.NoError(t, err)
	_, err = r.Register(context.Background(), "s", `"string"`)
	require.ErrorContains(t, err, "status 401")
	for _, text := range []string{"s3cr3t", base64.StdEncoding.EncodeToString([]byte("relay:" + password))} {
		require.NotContains(t, err.Error(), text)
		require.NotContains(t, fmt.Sprintf("%+v", errors.Unwrap(errors.Unwrap(err))), text)
	}
}

// A server that speaks no HTTP may send back the request, and package net/http quotes an answer that it cannot read.
func TestAnErrorOfAServerThatSpeaksNoHTTPDoesNotRepeatThePassword(t *testing.T) {
	const password = "s3cr3t p/w"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, given, _ := req.BasicAuth()
		_, _ = fmt.Fprintf(conn, "%s %s\r\n\r\n", req.Header.Get("Authorization"), given)
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	address.User = url.UserPassword("relay", password)
	r, err := schemas.NewRegistry(address.String())
	require.NoError(t, err)
	_, err = r.Register(context.Background(), "s", `"string"`)
	require.ErrorContains(t, err, "malformed HTTP")
	for _, text := range []string{"s3cr3t", base64.StdEncoding.EncodeToString([]byte("relay:" + password))} {
		require.NotContains(t, err.Error(), text)
	}
}
