package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/doctor"
)

func (p Program) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report problems of a configuration, with remedies",
		Long: `check examines the database and Kafka with the relay's own rights and changes nothing: version,
migrations, privileges, partitions, brokers, the topics of waiting rows, failed rows. troupe doctor
also checks a service's rights, the topics of a flow, and the registry.

With --debezium it reads the JSON of a Debezium connector for Postgres, and prints the equivalent
configuration of this relay, and, on standard error, options without an equivalent. With brokers set, it
also prints which topics for the rows exist: the relay creates none.

Exit status 1 if a failure was found that would stop the relay; warnings do not count.`,
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
			return p.checkDebezium(cmd, *connector)
		}
		v, config, err := p.readDatabase(cmd, settings...)
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
		look := doctor.Config{
			Database: config.ConnConfig, Login: config.BeforeConnect, Parts: []doctor.Part{doctor.Relay}, Brokers: addresses, Kafka: opts, Limit: askLimit,
		}
		if of.Mapping != nil {
			look.Parts = []doctor.Part{doctor.MappedRelay}
			look.Topics = mappedTopics(cmd.Context(), config, of)
		}
		r, err := doctor.Examine(cmd.Context(), look)
		if err != nil {
			return err
		}
		if of.Mapping != nil {
			ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
			defer cancel()
			readable := checkTable(ctx, r, config, of, v.text[publicationSetting.name])
			if readable && len(look.Topics) == 0 {
				r.Info("topics", fmt.Sprintf("no row in the table names one: rows go to %s, and the relay creates no topic", of.Mapping.Config().RouteReplacement))
			}
		}
		if secret := v.inTheClear(); secret != "" {
			r.Warn("kafka", secret, "kafka-tls")
		}
		return printReport(p.Stdout, r, form)
	}
	return cmd
}

func printReport(to io.Writer, r *doctor.Report, form string) error {
	var err error
	if form == "json" {
		err = printJSON(to, r)
	} else {
		err = r.Text(to, nil)
	}
	if err == nil && !r.OK() {
		err = reported{errors.New("something would stop the relay")}
	}
	return err
}
