// Package address parses the addresses of servers that users configure. An address may contain a password, in any part of a
// mistyped address, so no error of this package quotes an address. The errors of the libraries that parse addresses quote them:
// programs parse addresses with this package, and with schemas.NewRegistry, alert.Config and ambassador.Config, whose errors
// follow the same rule.
package address

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const notShown = "(not shown: it may hold a password)"

// ParsePool is pgxpool.ParseConfig with errors that do not quote text.
func ParsePool(text string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, unreadable(err)
	}
	return config, checkParts(text, &config.ConnConfig.Config)
}

// ParseConn is pgx.ParseConfig with errors that do not quote text.
func ParseConn(text string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, unreadable(err)
	}
	return config, checkParts(text, &config.Config)
}

// unreadable returns an error that names a file from the connection string that cannot be read, and contains nothing else of the
// string.
func unreadable(err error) error {
	var file *fs.PathError
	if errors.As(err, &file) {
		return fmt.Errorf("a file that the connection string names cannot be read: %w", file)
	}
	return errors.New("not a connection string " + notShown + ": want postgres://user:password@host:5432/database")
}

// checkParts refuses a URL whose password has a character that ends the user part, such as postgres://user:1/2@host/db: part of
// the password would become the name of the database, or of a setting, which errors and logs contain.
func checkParts(text string, config *pgconn.Config) error {
	cut := strings.Contains(pathOf(text), "@")
	hosts := []string{config.Host}
	for _, f := range config.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		cut = cut || strings.Contains(strings.TrimPrefix(host, "@"), "@") && !strings.HasPrefix(host, "/")
	}
	for name := range config.RuntimeParams {
		cut = cut || strings.Contains(name, "@")
	}
	if cut {
		return errors.New("a connection string with an @ after the host " + notShown + ": write / ? and @ of a password, or of the database's name, as " +
			"%2F %3F and %40")
	}
	return nil
}

// pathOf returns the database's name of a URL as it is written, or "" if text is no URL. A name may have an @ that is escaped.
func pathOf(text string) string {
	scheme, rest, url := strings.Cut(text, "://")
	if !url || scheme != "postgres" && scheme != "postgresql" {
		return ""
	}
	_, path, _ := strings.Cut(rest, "/")
	path, _, _ = strings.Cut(path, "?")
	return path
}

// ParseBrokers parses a comma-separated list of brokers, host:port or host each. For an empty text it returns no broker.
func ParseBrokers(text string) ([]string, error) {
	var brokers []string
	for broker := range strings.SplitSeq(text, ",") {
		if broker = strings.TrimSpace(broker); broker == "" {
			continue
		}
		brokers = append(brokers, broker)
		host, port, err := net.SplitHostPort(broker)
		if _, notIP := netip.ParseAddr(strings.Trim(broker, "[]")); err != nil && (notIP == nil || !strings.Contains(broker, ":")) {
			host, port, err = broker, "9092", nil
		}
		number, notNumber := strconv.ParseUint(port, 10, 16)
		if err != nil || notNumber != nil || number == 0 || strings.ContainsAny(host, "@/ \t\"'=") {
			return nil, fmt.Errorf("broker %d is not host:port %s: want host:port of one or more brokers, with commas between; "+
				"user and password have settings of their own", len(brokers), notShown)
		}
	}
	return brokers, nil
}

// CheckListen refuses an address to listen on that is not host:port.
func CheckListen(text string) error {
	switch _, _, err := net.SplitHostPort(text); {
	case strings.Contains(text, "@"):
		return errors.New("not an address to listen on " + notShown + ": want host:port, such as 127.0.0.1:8089")
	case err != nil:
		return fmt.Errorf("%q: want host:port, such as 127.0.0.1:8089", text)
	}
	return nil
}

// CheckURL refuses an address that is not an http or https URL with a host, or that has a user, a query or a fragment.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("not an http or https URL with a host and no user, query or fragment " + notShown)
	}
	return nil
}

var (
	user     = regexp.MustCompile("://[^\\s\"'`<>]*:[^\\s\"'`<>]*@")
	password = regexp.MustCompile(`(?i)\bpassword\s*=\s*('[^']*'?|[^\s"']+)`)
)

// Redact removes users and passwords of URLs, and passwords of connection strings, from a text that may quote user input where no
// address is expected.
func Redact(text string) string {
	text = user.ReplaceAllStringFunc(text, func(found string) string {
		if found == "://user:password@" { // of our own errors, which show the form
			return found
		}
		return "://…@"
	})
	return password.ReplaceAllString(text, "password=…")
}
