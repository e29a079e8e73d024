package door

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func from(address, authorization string) *http.Request {
	return &http.Request{RemoteAddr: address, Header: http.Header{"Authorization": {authorization}}}
}

func TestWrongTokensAreBoundedByAddressAndTime(t *testing.T) {
	t.Parallel()
	var a Attempts
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	looked := 0
	try := func(at time.Time, right bool) (ok, limited bool) {
		a.Now = func() time.Time { return at }
		return a.Try(from("192.0.2.1:443", ""), func() bool { looked++; return right })
	}
	for range AttemptsAtOnce {
		ok, limited := try(now, false)
		require.False(t, ok || limited)
	}
	ok, limited := try(now, true)
	require.True(t, limited && !ok, "not even the right one")
	require.Equal(t, AttemptsAtOnce, looked, "it was not looked at")
	ok, _ = try(now.Add(AttemptEvery), true)
	require.True(t, ok)
	for range 1000 { // right tokens do not count
		ok, _ = try(now.Add(AttemptEvery), true)
		require.True(t, ok)
	}
	require.Equal(t, "2001:db8:1:2::", AddressOf(from("[2001:db8:1:2:3:4:5:6]:443", "")))
	require.Equal(t, "192.0.2.1", AddressOf(from("192.0.2.1:443", "")))
	require.Equal(t, "192.0.2.1", AddressOf(from("[::ffff:192.0.2.1]:443", "")))
	require.Equal(t, "fe80::", AddressOf(from("[fe80::3:4:5:6%eth0]:443", "")), "of one link")
}

// TestWrongTokensOfManyAddressesDelayNoOther: a customer of a provider may have 65,536 networks of IPv6.
func TestWrongTokensOfManyAddressesDelayNoOther(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-0123456789abcdef"
	var token Token
	token.Set(secret)
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	token.Attempts.Now = func() time.Time { return now }
	for network := range 1 << 14 {
		for range AttemptsAtOnce {
			token.Check(from(fmt.Sprintf("[2001:db8:%x::1]:443", network), "Bearer a guess"))
		}
	}
	require.Equal(t, TooMany, token.Check(from("[2001:db8:3fff::2]:443", "Bearer "+secret)))
	for network := range 1000 {
		require.Equal(t, Right, token.Check(from(fmt.Sprintf("192.0.2.%d:443", network%256), "Bearer "+secret)))
		require.Equal(t, Right, token.Check(from(fmt.Sprintf("[2001:db8:ffff:%x::1]:443", network), "Bearer "+secret)))
	}
}

func TestATokenIsWantedAsBearer(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-0123456789abcdef"
	var token Token
	require.Equal(t, NoToken, token.Check(from("192.0.2.1:443", "Bearer "+secret)))
	token.Set(secret)
	for header, want := range map[string]Verdict{
		"": Missing, secret: Missing, "Basic " + secret: Missing, "Bearer" + secret: Missing,
		"Bearer ": Wrong, "Bearer x": Wrong, "Bearer " + secret + "x": Wrong, "Bearer  " + secret: Wrong,
		"Bearer " + secret: Right, "bearer " + secret: Right,
	} {
		require.Equal(t, want, token.Check(from("192.0.2.1:443", header)), "%q", header)
	}
	for range AttemptsAtOnce {
		token.Check(from("198.51.100.7:443", "Bearer x"))
	}
	require.Equal(t, TooMany, token.Check(from("198.51.100.7:443", "Bearer "+secret)))
	require.Equal(t, Missing, token.Check(from("198.51.100.7:443", "")), "no token is no guess")
	token.Set("")
	require.Equal(t, NoToken, token.Check(from("198.51.100.7:443", "")))
}

func TestOnlyThisMachinesNamesAreItsOwn(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1:8089": true, "127.0.0.1": true, "[::1]:8089": true, "::1": true, "localhost:8089": true, "LOCALHOST": true,
		"evil.example:8089": false, "192.0.2.1": false, "localhost.evil.example": false, "0.0.0.0:8089": false, "": false,
		"127.0.0.1.evil.example:8089": false,
	} {
		require.Equal(t, want, Called(host, Localhost), "%q", host)
	}
}

func TestAnEndpointOnLoopbackAnswersThisMachineOnly(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, c := range []struct {
		ip, host string
		want     int
	}{
		{"127.0.0.1", "127.0.0.1:8087", http.StatusOK},
		{"127.0.0.1", "localhost:8087", http.StatusOK},
		{"::1", "[::1]:8087", http.StatusOK},
		{"127.0.0.1", "watch.evil.example:8087", http.StatusMisdirectedRequest},
		{"::1", "", http.StatusMisdirectedRequest},
		{"0.0.0.0", "watch:8087", http.StatusOK},
		{"192.0.2.1", "watch.example", http.StatusOK},
	} {
		w := httptest.NewRecorder()
		Here(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8087}, next).ServeHTTP(w, &http.Request{Host: c.host})
		require.Equal(t, c.want, w.Code, "%s on %s", c.host, c.ip)
	}
	require.False(t, OnLoopback(&net.UnixAddr{Name: "s"}))
}

func TestAProxyIsKnownByItsAddressAndItsSecret(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-0123456789abcdef"
	sent := func(from string, with bool, address string, secrets ...string) bool {
		var p Proxy
		if from != "" {
			p.From = []netip.Prefix{netip.MustParsePrefix(from)}
		}
		if with {
			p.Secret.Set(secret)
		}
		return p.Sent(&http.Request{RemoteAddr: address, Header: http.Header{ProxySecret: secrets}})
	}
	require.False(t, sent("", false, "192.0.2.1:443"), "neither is declared")
	require.True(t, sent("192.0.2.0/24", false, "192.0.2.1:443"))
	require.True(t, sent("192.0.2.0/24", false, "[::ffff:192.0.2.1]:443"))
	require.True(t, sent("2001:db8::/32", false, "[2001:db8::1]:443"))
	require.False(t, sent("192.0.2.0/24", false, "198.51.100.1:443"))
	require.False(t, sent("192.0.2.0/24", false, "@"), "a socket of another kind")
	require.True(t, sent("", true, "198.51.100.1:443", secret))
	require.False(t, sent("", true, "198.51.100.1:443"))
	require.False(t, sent("", true, "198.51.100.1:443", ""))
	require.False(t, sent("", true, "198.51.100.1:443", secret, secret))
	require.True(t, sent("192.0.2.0/24", true, "192.0.2.1:443", secret))
	require.False(t, sent("192.0.2.0/24", true, "192.0.2.1:443", "x"), "both are wanted")
	require.False(t, sent("192.0.2.0/24", true, "198.51.100.1:443", secret), "both are wanted")
}
