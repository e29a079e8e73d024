package registry

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/twmb/franz-go/pkg/sr"
)

// maxAnswer is the limit on a response of the registry, in bytes. A response contains the schema, of at most avsc.MaxSchema, as a
// JSON string, with the escapes and, from some registries, twice.
const maxAnswer = 4 << 20

var errAnswerTooLarge = errors.New("the answer is too large")

// newBoundedClient returns an sr.Client whose http client fails above maxAnswer.
func newBoundedClient(opts ...sr.ClientOpt) (*sr.Client, error) {
	unbounded, err := sr.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	bounded := *unbounded.OptValue(sr.HTTPClient).(*http.Client)
	if bounded.Transport == nil {
		bounded.Transport = http.DefaultTransport
	}
	bounded.Transport = boundedTransport{bounded.Transport}
	if bounded.CheckRedirect == nil {
		bounded.CheckRedirect = stayAtRegistry
	}
	// The transport already has the TLS settings: sr.NewClient puts them there.
	return sr.NewClient(append(opts, sr.DialTLSConfig(nil), sr.HTTPClient(&bounded))...)
}

// stayAtRegistry refuses a redirect to another scheme, host or port. Go sends the password along to another port of the host, and to its
// subdomains, also from https to plain http.
func stayAtRegistry(next *http.Request, before []*http.Request) error {
	if first := before[0].URL; next.URL.Scheme != first.Scheme || next.URL.Host != first.Host {
		return errors.New("the registry redirects to another address: set its own address")
	}
	if len(before) >= 10 {
		return errors.New("the registry redirects again and again")
	}
	return nil
}

type boundedTransport struct{ http.RoundTripper }

func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err == nil && resp.Body != nil {
		resp.Body = &boundedBody{resp.Body, maxAnswer}
	}
	return resp, err
}

// boundedBody fails with errAnswerTooLarge if the body has more than left bytes.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errAnswerTooLarge, maxAnswer)
	}
	return n, err
}
