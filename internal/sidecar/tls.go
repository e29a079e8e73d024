package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// identity are the settings of TLS to one side.
type identity struct {
	ca, cert, key, name setting
}

var (
	toDatabase = identity{databaseCA, databaseCert, databaseKey, databaseName}
	toKafka    = identity{kafkaCA, kafkaCert, kafkaKey, kafkaName}
)

// tls is nil where none of the settings is given.
func (v values) tls(i identity) (*tls.Config, error) {
	ca, cert, key, name := v.text[i.ca.name], v.text[i.cert.name], v.text[i.key.name], v.text[i.name.name]
	if ca+cert+key+name == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, usagef("%s (from %s): %w", i.ca.name, v.from[i.ca.name], err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, v.bad(i.ca, "a file with certificates in PEM")
		}
	}
	if (cert == "") != (key == "") {
		return nil, usagef("%s and %s: set both or none", i.cert.name, i.key.name)
	}
	if cert == "" {
		return config, nil
	}
	if _, err := keyPair(cert, key); err != nil {
		return nil, usagef("%s (from %s): %w", i.cert.name, v.from[i.cert.name], err)
	}
	// Read for each connection: short-lived certificates are replaced on disk while we run.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return keyPair(cert, key) }
	return config, nil
}

func keyPair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	return &pair, nil
}

// encryptDatabase makes TLS and the check of the server's name a must where one of the settings is given, whatever sslmode
// says: there is no falling back to plain text.
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
	c.TLSConfig, c.Fallbacks = encryptedTo(config, c.Host), nil
	for _, f := range hosts { // sslmode=prefer has each host twice, with and without TLS
		if p := (place{f.Host, f.Port}); !seen[p] {
			seen[p] = true
			c.Fallbacks = append(c.Fallbacks, &pgconn.FallbackConfig{
				Host: f.Host, Port: f.Port, TLSConfig: encryptedTo(config, f.Host),
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

func encryptedTo(config *tls.Config, host string) *tls.Config {
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	return config
}

// isLoopback says whether nobody but this machine can reach an address.
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
