package sidecar

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// commandProgram is the prefix of the variables of an Identity.
const commandProgram = "troupe"

// identitySettings contains the settings of an Identity: TLS and authentication, without the addresses.
var identitySettings = settingsOfProgram(commandProgram, slices.Concat(databaseSettings[1:], kafkaSettings[1:])...)

// An Identity holds the settings for TLS and authentication with which the commands of troupe connect to databases and brokers.
// The settings are the relay's. They are read from the environment only, as TROUPE_DATABASE_… and TROUPE_KAFKA_….
type Identity struct{ v values }

// Identity reads the environment. Its errors are usage errors.
func (p Program) Identity() (Identity, error) {
	l := &settingsOf{program: commandProgram, known: identitySettings, environ: make(map[string]string), cmd: &cobra.Command{}}
	for _, line := range p.Environ {
		if name, value, ok := strings.Cut(line, "="); ok && value != "" {
			l.environ[name] = value
		}
	}
	v, err := l.resolve("", []layer{l.variables(), l.defaults()}, identitySettings)
	return Identity{v}, err
}

var passwordWord = regexp.MustCompile(`(?i)\bpassword\s*=`)

// Database sets TLS, and the password of new connections unless the URL that config was parsed from has a password.
func (i Identity) Database(config *pgxpool.Config) error {
	text := config.ConnString()
	own := passwordWord.MatchString(text)
	if u, err := url.Parse(text); err == nil && u.User != nil {
		_, set := u.User.Password()
		own = own || set
	}
	if !own {
		if password := i.v.text[databasePassword.name]; password != "" {
			config.ConnConfig.Password = password
		}
		if login := i.v.login(); login != nil {
			config.BeforeConnect = login
		}
	}
	return i.v.encryptDatabase(config.ConnConfig)
}

// Kafka returns the options for a client of Kafka: TLS and authentication.
func (i Identity) Kafka() ([]kgo.Opt, error) { return i.v.kafka() }
