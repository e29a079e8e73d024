package traces

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-go/troupe/internal/address"
)

const prefix = "OTEL_EXPORTER_OTLP_"

// CheckEnvironment refuses a variable that the SDK cannot read. The SDK itself prints the value to stderr, which may hold a token, and
// goes on without it.
func CheckEnvironment() error {
	for _, v := range []struct {
		names []string
		check func(string) error
	}{
		{[]string{prefix + "ENDPOINT", prefix + "TRACES_ENDPOINT"}, address.CheckURL},
		{[]string{prefix + "HEADERS", prefix + "TRACES_HEADERS"}, checkHeaders},
		{[]string{prefix + "TIMEOUT", prefix + "TRACES_TIMEOUT"}, checkNumber},
		{[]string{prefix + "CERTIFICATE", prefix + "TRACES_CERTIFICATE"}, checkCertificates},
		{[]string{"OTEL_RESOURCE_ATTRIBUTES"}, checkAttributes},
		{[]string{"OTEL_TRACES_SAMPLER"}, checkSampler},
		{[]string{"OTEL_TRACES_SAMPLER_ARG"}, checkRatio},
	} {
		for _, name := range v.names {
			if text := variable(name); text != "" {
				if err := v.check(text); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return errors.Join(checkPair(prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY"),
		checkPair(prefix+"TRACES_CLIENT_CERTIFICATE", prefix+"TRACES_CLIENT_KEY"))
}

func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// token is a name of a header (RFC 9110, section 5.6.2).
var token = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func checkHeaders(text string) error { return checkPairs(text, token.MatchString) }

func checkAttributes(text string) error { return checkPairs(text, func(string) bool { return true }) }

// checkPairs refuses a list that is not name=value,… with values that are escaped as in a URL.
func checkPairs(text string, named func(string) bool) error {
	for pair := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(pair, "=")
		_, badName := url.PathUnescape(name)
		_, badValue := url.PathUnescape(value)
		if !found || !named(strings.TrimSpace(name)) || badName != nil || badValue != nil {
			return errors.New("not a list of name=value (not shown: it may hold a token): want commas between, and %25, %2C and %3D for % , and = of a value")
		}
	}
	return nil
}

func checkNumber(text string) error {
	if _, err := strconv.Atoi(text); err != nil {
		return errors.New("not a number of milliseconds")
	}
	return nil
}

func checkSampler(text string) error {
	names := []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}
	if !slices.Contains(names, strings.ToLower(text)) {
		return errors.New("no such sampler: want one of " + strings.Join(names, ", "))
	}
	return nil
}

func checkRatio(text string) error {
	if ratio, err := strconv.ParseFloat(text, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		return errors.New("not a ratio from 0 to 1")
	}
	return nil
}

func checkCertificates(file string) error {
	pem, err := os.ReadFile(file)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return errors.New("it names no readable file with certificates in PEM")
	}
	return nil
}

func checkPair(cert, key string) error {
	if variable(cert) == "" || variable(key) == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(variable(cert), variable(key)); err != nil {
		return fmt.Errorf("%s, %s: they name no readable files with a certificate and its key in PEM", cert, key)
	}
	return nil
}
