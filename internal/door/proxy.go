package door

import (
	"net/http"
	"net/netip"
	"slices"
)

// ProxySecret is the header with a proxy's secret.
const ProxySecret = "Troupe-Proxy-Secret"

// A Proxy is a reverse proxy whose headers name the user of a request. Every client can send these headers, so they count only in
// a request that Sent accepts.
type Proxy struct {
	From   []netip.Prefix // the proxy's addresses; nil: any address
	Secret Token          // the zero value: no secret
}

// Sent reports whether the proxy sent the request: from one of its addresses and with its secret. It returns false for a Proxy that
// has neither. The addresses are compared with the connection's, never with a header.
func (p *Proxy) Sent(r *http.Request) bool {
	if len(p.From) == 0 && p.Secret.sum.Load() == nil {
		return false
	}
	if len(p.From) > 0 {
		at, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return false
		}
		address := at.Addr().Unmap().WithZone("")
		if !slices.ContainsFunc(p.From, func(one netip.Prefix) bool { return one.Contains(address) }) {
			return false
		}
	}
	if p.Secret.sum.Load() == nil {
		return true
	}
	values := r.Header.Values(ProxySecret)
	return len(values) == 1 && p.Secret.is(values[0])
}
