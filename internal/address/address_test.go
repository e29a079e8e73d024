package address_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/address"
)

func TestABrokenAddressIsRefusedAndNotQuoted(t *testing.T) {
	for kind, read := range map[string]func(string) error{
		"database": func(text string) error {
			_, err := address.ParsePool(text)
			if _, single := address.ParseConn(text); (single == nil) != (err == nil) {
				t.Errorf("%q: %v and %v", text, err, single)
			}
			return err
		},
		"brokers": func(text string) error { _, err := address.ParseBrokers(text); return err },
		"url":     address.CheckURL,
		"listen":  address.CheckListen,
	} {
		for _, text := range broken[kind] {
			err := read(text)
			require.Error(t, err, "%s %q", kind, text)
			require.NotContains(t, err.Error(), marker, "%s %q", kind, text)
		}
	}
}

func TestAnAddressIsReadAsItsLibraryReadsIt(t *testing.T) {
	for _, text := range []string{
		"postgres://u:p@h:5432/d", "postgresql://u:p%40%2F%3F%23@h/d?sslmode=disable&application_name=a", "postgres:///d?host=/tmp", "host=/tmp dbname=d",
		"postgres://u@h1:1,h2:2/d", "host=@abstract dbname=d", "host=/var/run/a@b dbname=d", "",
		"postgres://u:#p@h/d", "postgres://u:12#p@h/d", "postgres://h/orders#1", "postgres://h/d?application_name=a#b", // # is data to Postgres
		"postgres://h/tenant%40prod", "host=h dbname=tenant@prod",
	} {
		config, err := address.ParsePool(text)
		require.NoError(t, err, text)
		require.NotNil(t, config)
	}
	_, err := address.ParsePool("postgres://u:p@h/d?sslmode=verify-full&sslrootcert=/no/such/file")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "/no/such/file")

	for text, want := range map[string][]string{
		"": nil, " , ": nil, "h:9092": {"h:9092"}, "h": {"h"}, " a:1, b.example:2 ,[::1]:3": {"a:1", "b.example:2", "[::1]:3"},
		"::1, [::1], 10.0.0.1": {"::1", "[::1]", "10.0.0.1"},
	} {
		got, err := address.ParseBrokers(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	require.NoError(t, address.CheckListen(":8080"))
	require.NoError(t, address.CheckListen("[::1]:0"))
	require.NoError(t, address.CheckURL("http://collector:4318/otlp"))
}

func TestATextThatQuotesAnAddressIsShownWithoutIt(t *testing.T) {
	for text, want := range map[string]string{
		`unknown command "postgres://u:s3cr3t@h/d" for "troupe dlq list"`: `unknown command "postgres://…@h/d" for "troupe dlq list"`,
		`unknown argument "host=h password='s3 cr3t' user=u"`:             `unknown argument "host=h password=… user=u"`,
		`unknown argument "password=s3cr3t"`:                              `unknown argument "password=…"`,
		"want postgres://user:password@host/db or http://user@host":       "want postgres://user:password@host/db or http://user@host",
		"saga ann@example.com of http://h/a is not there":                 "saga ann@example.com of http://h/a is not there",
	} {
		require.Equal(t, want, address.Redact(text))
	}
}
