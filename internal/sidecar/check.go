package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

func (p Program) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what would go wrong, and what to do about it",
		Long: `check looks at the database and at Kafka with the relay's own rights and changes nothing: version,
migrations, privileges, partitions, brokers, the topics of waiting rows, rows in trouble.

With --debezium it looks at neither: it reads the JSON of a Debezium connector for Postgres and prints
the configuration that makes this relay do the same, and, on standard error, what has no equivalent.

Exit status 1 when something would stop the relay; warnings do not count.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop KAFKA_BROKERS=127.0.0.1:9092 outbox-relay check
  outbox-relay check --output json | jq '.findings[] | select(.level != "ok")'
  outbox-relay check --debezium connector.json > relay.yaml`,
		Args: noArguments,
	}
	settings := slices.Concat(databaseSettings, kafkaSettings, []setting{publicationSetting, output})
	declareOne(cmd, settings...)
	connector := cmd.Flags().String("debezium", "", "`file.json` with a Debezium connector, to be moved to this relay")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *connector != "" {
			return p.checkDebezium(*connector, cmd.Flag(output.name).Value.String())
		}
		v, err := p.read(cmd, settings...)
		if err != nil {
			return err
		}
		config, err := v.database()
		if err != nil {
			return err
		}
		of, err := v.table()
		if err != nil {
			return err
		}
		addresses, err := v.brokerList()
		if err != nil {
			return err
		}
		opts, err := v.kafka()
		if err != nil {
			return err
		}
		form, err := v.oneOf(output)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
		defer cancel()
		var r report
		topics := r.checkDatabase(ctx, config, of, v.text[publicationSetting.name])
		ctx, cancel = context.WithTimeout(cmd.Context(), askLimit) // a database that hangs leaves Kafka its time
		defer cancel()
		r.checkKafka(ctx, addresses, opts, topics)
		if v.inTheClear() {
			r.warn("kafka", "kafka-sasl plain without TLS: the password crosses the network as it is", "kafka-tls")
		}
		return r.print(p.Stdout, form)
	}
	return cmd
}

// A finding is one thing that was looked at.
type finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, info, warning, failure
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

type report struct {
	OK       bool      `json:"ok"`
	Findings []finding `json:"findings"`
}

func (r *report) ok(name, found string)   { r.add(finding{name, "ok", found, ""}) }
func (r *report) info(name, found string) { r.add(finding{name, "info", found, ""}) }

func (r *report) warn(name, found, remedy string) { r.add(finding{name, "warning", found, remedy}) }
func (r *report) fail(name, found, remedy string) { r.add(finding{name, "failure", found, remedy}) }

func (r *report) add(f finding) { r.Findings = append(r.Findings, f) }

func (r *report) print(to io.Writer, form string) error {
	r.OK = true
	for _, f := range r.Findings {
		r.OK = r.OK && f.Level != "failure"
	}
	if form == "json" {
		if err := printJSON(to, r); err != nil {
			return err
		}
	} else if err := r.printText(to); err != nil {
		return err
	}
	if !r.OK {
		return reported{errors.New("something would stop the relay")}
	}
	return nil
}

func (r *report) printText(to io.Writer) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(to, "%-8s %-12s %s\n", f.Level, f.Name, f.Found); err != nil {
			return err
		}
		if f.Remedy == "" {
			continue
		}
		if _, err := fmt.Fprintf(to, "%-21s → %s\n", "", f.Remedy); err != nil {
			return err
		}
	}
	return nil
}
