package sidecar

import (
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Servers are the database and the brokers of a relay's settings, for a command of another program that looks at them.
type Servers struct {
	Database   *pgxpool.Config // nil where none is set
	Brokers    []string        // nil where none are set
	Kafka      []kgo.Opt       // TLS, and who we are
	InTheClear bool            // the password for Kafka crosses the network as it is
	Mapped     bool            // the relay's table is one with a mapping
}

// serverSettings are those of Servers.
var serverSettings = slices.Concat(databaseSettings, kafkaSettings)

// DeclareServers gives a command the flags of the relay's settings that say where the database and Kafka are, how they are
// reached and as whom, with --config and --outbox. Their variables are the relay's.
func DeclareServers(cmd *cobra.Command) { declareOne(cmd, serverSettings...) }

// Servers reads the settings of DeclareServers, as the relay does: flags, else the environment, else the file. Neither a
// database nor brokers need be set. Its errors are of usage.
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
