package plain_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log" //nolint:depguard // the test is about it
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/plain"
)

// lines sends each written line to a channel.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestAResponseWithoutARequestIsNotLogged has a server that sends a second response, with the request's authorization in it:
// net/http writes it to the standard logger, so that the log of a relay had the password of its registry.
func TestAResponseWithoutARequestIsNotLogged(t *testing.T) {
	logged := make(lines, 10)
	plain.StandardLog(logged)
	defer log.SetOutput(os.Stderr)

	conn, server := net.Pipe()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	go func() {
		asked, err := http.ReadRequest(bufio.NewReader(server))
		if err != nil {
			return
		}
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nX: "+asked.Header.Get("Authorization")+"\r\n\r\na payload")
	}()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://registry/subjects", nil)
	require.NoError(t, err)
	request.SetBasicAuth("relay", "secret")
	response, err := client.Do(request)
	require.NoError(t, err)
	_, err = io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	line := <-logged
	require.Contains(t, line, "Unsolicited response received on idle HTTP channel")
	require.NotContains(t, line, "Basic")
	require.NotContains(t, line, "payload")
	require.Equal(t, byte('\n'), line[len(line)-1])

	log.Print("another line")
	require.Contains(t, <-logged, "another line\n")
}

// TestEachProgramLimitsItsStandardLog reads the programs' main functions.
func TestEachProgramLimitsItsStandardLog(t *testing.T) {
	mains, err := filepath.Glob("../../cmd/*/main.go")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(mains), 6)
	for _, name := range mains {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if bytes.Contains(text, []byte("demo.Main(")) {
			text, err = os.ReadFile("../demo/main.go")
			require.NoError(t, err)
		}
		require.Contains(t, string(text), "plain.StandardLog(os.Stderr)\n", name)
	}
}
