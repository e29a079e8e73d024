package sidecar

import (
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Servers holds the database and the brokers of a relay's settings, for commands of other programs that connect to them.
type Servers struct {
	Database   *pgxpool.Config // nil if none is set
	Brokers    []string        // nil if none are set
	Kafka      []kgo.Opt       // TLS and authentication
	InTheClear string          // describes the secret for Kafka that crosses the network unencrypted; "": none does
	Mapped     bool            // the relay's table has a mapping
}

// serverSettings contains the settings that Servers reads.
var serverSettings = slices.Concat(databaseSettings, kafkaSettings)

// DeclareServers gives a command the flags of the relay's settings for the addresses of the database and Kafka, TLS and
// authentication, with --config and --outbox. Their variables are the relay's.
func DeclareServers(cmd *cobra.Command) { declareOne(cmd, serverSettings...) }

// Servers reads the settings of DeclareServers, as the relay does: flags, else the environment, else the file. Neither the
// database nor the brokers need be set. Its errors are of usage.
func (p Program) Servers(cmd *cobra.Command) (s Servers, err error) {
	v, err := p.read(cmd, serverSettings...)
	if err != nil {
		return s, err
	}
	s.InTheClear, s.Mapped = v.inTheClear(), v.mapping != nil
	if v.text[databaseURL.name] != "" {
		if s.Database, err = v.database(); err != nil {
			return s, err
		}
	}
	if v.text[brokers.name] == "" {
		return s, nil
	}
	if s.Brokers, err = v.brokerList(); err != nil {
		return s, err
	}
	s.Kafka, err = v.kafka()
	return s, err
}
