package sidecar

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/address"
)

// bad returns an error about the value of a setting, with its source, the value and the expected form.
func (v values) bad(s setting, want string) error {
	return usagef("%s (from %s): %q: want %s", s.name, v.from[s.name], v.text[s.name], want)
}

func (v values) required(s setting, want string) error {
	s.program = v.program
	set := s.variable()
	if s.secret {
		set += ", " + set + "_FILE"
	}
	if s.printed {
		set += ", " + s.variable() + "_COMMAND"
	}
	flag := s.name
	if s.hidden {
		flag = s.fileName()
	}
	of := ""
	if v.outbox != "" {
		of = " for outbox " + v.outbox
	}
	return usagef("%s is not set%s: want %s; set %s, or --%s", s.name, of, want, set, flag)
}

func (v values) duration(s setting) (time.Duration, error) {
	d, err := time.ParseDuration(v.text[s.name])
	if err != nil || d <= 0 {
		return 0, v.bad(s, "a time such as 500ms or 5s")
	}
	return d, nil
}

func (v values) number(s setting) (int, error) {
	n, err := strconv.Atoi(v.text[s.name])
	if err != nil || n < s.least || n > s.most {
		return 0, v.bad(s, fmt.Sprintf("a whole number from %d to %d", s.least, s.most))
	}
	return n, nil
}

func (v values) oneOf(s setting) (string, error) {
	if !slices.Contains(s.choices, v.text[s.name]) {
		return "", v.bad(s, strings.Join(s.choices, " or "))
	}
	return v.text[s.name], nil
}

func (v values) address(s setting) (string, error) {
	if err := address.CheckListen(v.text[s.name]); err != nil {
		return "", usagef("%s (from %s): %w", s.name, v.from[s.name], err)
	}
	return v.text[s.name], nil
}

func (v values) brokerList() ([]string, error) {
	const want = "host:port of one or more brokers, separated by commas"
	if v.text[brokers.name] == "" {
		return nil, v.required(brokers, want)
	}
	list, err := address.ParseBrokers(v.text[brokers.name])
	if err != nil {
		return nil, usagef("%s (from %s): %w", brokers.name, v.from[brokers.name], err)
	}
	for _, broker := range list {
		if _, _, err := net.SplitHostPort(broker); err != nil {
			return nil, usagef("%s (from %s): a broker without a port: want %s", brokers.name, v.from[brokers.name], want)
		}
	}
	return list, nil
}

// readDatabase reads the settings of the outbox that a command works on, with the configuration of its database.
func (p Program) readDatabase(cmd *cobra.Command, settings ...setting) (values, *pgxpool.Config, error) {
	v, err := p.read(cmd, settings...)
	if err != nil {
		return v, nil, err
	}
	config, err := v.database()
	return v, config, err
}

// database never puts the value into an error: it may contain a password, even if it cannot be parsed.
func (v values) database() (*pgxpool.Config, error) {
	if v.text[databaseURL.name] == "" {
		return nil, v.required(databaseURL, "postgres://user:password@host:5432/database")
	}
	config, err := address.ParsePool(v.text[databaseURL.name])
	if err != nil {
		return nil, usagef("%s (from %s): %w", databaseURL.name, v.from[databaseURL.name], err)
	}
	if _, set := config.ConnConfig.RuntimeParams["application_name"]; !set {
		config.ConnConfig.RuntimeParams["application_name"] = v.program
	}
	if password := v.text[databasePassword.name]; password != "" {
		config.ConnConfig.Password = password
	}
	config.BeforeConnect = v.login()
	address.OwnNames(&config.ConnConfig.Config)
	return config, v.encryptDatabase(config.ConnConfig)
}
