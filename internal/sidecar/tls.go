package sidecar

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// identity holds the TLS settings of connections to one server.
type identity struct {
	ca, cert, key, name setting
}

var (
	toDatabase = identity{databaseCA, databaseCert, databaseKey, databaseName}
	toKafka    = identity{kafkaCA, kafkaCert, kafkaKey, kafkaName}
)

// An encryption makes the TLS configuration of each connection to one server. It reads its files for each connection:
// certificates and authorities are replaced on disk while the program runs.
type encryption struct {
	config *tls.Config
	ca     string // file of authorities; "": the system's
}

// tls returns nil if none of the settings is given.
func (v values) tls(i identity) (*encryption, error) {
	ca, cert, key, name := v.text[i.ca.name], v.text[i.cert.name], v.text[i.key.name], v.text[i.name.name]
	if ca+cert+key+name == "" {
		return nil, nil
	}
	e := &encryption{config: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}, ca: ca}
	if ca != "" {
		switch _, err := authorities(ca); {
		case errors.Is(err, errNoCertificates):
			return nil, v.bad(i.ca, "a file with certificates in PEM")
		case err != nil:
			return nil, usagef("%s (from %s): %w", i.ca.name, v.from[i.ca.name], err)
		}
	}
	if (cert == "") != (key == "") {
		return nil, usagef("%s and %s: set both or none", i.cert.name, i.key.name)
	}
	if cert == "" {
		return e, nil
	}
	if _, err := keyPair(cert, key); err != nil {
		return nil, usagef("%s (from %s): %w", i.cert.name, v.from[i.cert.name], err)
	}
	e.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return keyPair(cert, key) }
	return e, nil
}

// to returns the configuration of connections to a host. With a file of authorities, the server's certificate is verified against
// the authorities that are in the file at the time of the handshake.
func (e *encryption) to(host string) *tls.Config {
	config := e.config.Clone()
	config.ServerName = cmp.Or(config.ServerName, host)
	if e.ca == "" {
		return config
	}
	name := config.ServerName
	config.InsecureSkipVerify = true // the standard verification; VerifyConnection does the same with the file's authorities
	config.VerifyConnection = func(state tls.ConnectionState) error {
		roots, err := authorities(e.ca)
		if err != nil {
			return err
		}
		options := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
		for _, c := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(c)
		}
		if _, err := state.PeerCertificates[0].Verify(options); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return nil
	}
	return config
}

// dial connects to host:port.
func (e *encryption) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	d := tls.Dialer{Config: e.to(host)}
	return d.DialContext(ctx, network, address)
}

// dialLimit bounds the time to connect, handshakes included.
const dialLimit = 5 * time.Second

var errNoCertificates = errors.New("no certificates in PEM")

func authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %w", file, errNoCertificates)
	}
	return pool, nil
}

func keyPair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	return &pair, nil
}

// encryptDatabase requires TLS and the check of the server's name if one of the settings is given, whatever sslmode is: there is
// no fallback to plain text.
func (v values) encryptDatabase(c *pgx.ConnConfig) error {
	config, err := v.tls(toDatabase)
	if err != nil || config == nil {
		return err
	}
	type place struct {
		host string
		port uint16
	}
	first := place{c.Host, c.Port}
	seen := map[place]bool{first: true}
	hosts := c.Fallbacks
	c.TLSConfig, c.Fallbacks = config.to(c.Host), nil
	for _, f := range hosts { // sslmode=prefer has each host twice, with and without TLS
		if p := (place{f.Host, f.Port}); !seen[p] {
			seen[p] = true
			c.Fallbacks = append(c.Fallbacks, &pgconn.FallbackConfig{
				Host: f.Host, Port: f.Port, TLSConfig: config.to(f.Host),
			})
		}
	}
	for p := range seen {
		if filepath.IsAbs(p.host) {
			return usagef("database-tls-… is set, and database-url (from %s) names a socket, which has no TLS: want a host",
				v.from[databaseURL.name])
		}
	}
	return nil
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, err
	}
	if host == "localhost" {
		return true, nil
	}
	ip := net.ParseIP(host)
	if ip == nil && host != "" {
		return false, errors.New("a name, which may mean any address")
	}
	return ip != nil && ip.IsLoopback(), nil
}
