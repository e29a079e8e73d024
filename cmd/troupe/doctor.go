package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/registry"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/topics"
)

// doctorFlags holds the flags that select the checks.
type doctorFlags struct {
	registry string
	parts    []string
	hops     []string
	cfg      doctor.Config
	output   format
}

func newDoctor() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check database, Kafka and registry, and print a remedy for each finding",
		Long: `doctor checks the servers that a service and its relay use, with the rights of the connecting role, and changes nothing. It
checks only servers that have an address in its settings. The settings are the relay's, so that it meets the same conditions as a
relay with the same file or environment; relay-reference.md lists them.

Database: reachable, version, standby, pooler, durability, connections, clock, version of the migrations, rights of the role for each
part of --as, log and slots, positions left, parked rows.
Kafka: each broker at its advertised address, versions, features.
Topics with waiting rows, of --flow and of --hop: existence, leaders, replicas, min.insync.replicas, cleanup, retention, rights.
Registry: reachable, level of compatibility.
For missing rights it prints the GRANT statements.

Parts: relay, mapped-relay, participant, local (participant.Config.Local), saga and flow (each in addition to participant), watch,
operator (troupe dlq, held, inbox) and saga-operator (troupe saga). --role NAME checks another role, if the connecting role is allowed
to SET ROLE to it.

Exit status: 0 no failure was found (warnings do not count), 1 a failure was found, 2 wrong usage.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop KAFKA_BROKERS=127.0.0.1:9092 troupe doctor --flow order
  troupe doctor --config relay.yaml --outbox payment --as relay
  troupe doctor --as participant,saga --role order_service
  troupe doctor --hop order.payment --output json | jq '.findings[] | select(.level == "failure")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.parts, "as", nil, "part whose rights are checked, repeatable: `"+partNames()+"` (default: relay and participant; with a mapping mapped-relay)")
	flags.StringVar(&f.cfg.Role, "role", "", "`name` of the role whose rights are checked (default: the connecting role)")
	flags.StringVar(&f.cfg.Flow, "flow", "", "`name` of a flow: all of its topics are checked [TROUPE_FLOW]")
	flags.StringSliceVar(&f.hops, "hop", nil, "`flow.hop` whose topics must exist, repeatable")
	flags.StringVar(&f.registry, "registry", "", "`URL` of the schema registry [SCHEMA_REGISTRY_URL]")
	flags.DurationVar(&f.cfg.Limit, "timeout", 10*time.Second, "longest `time` for each server's answers")
	f.output.declare(cmd)
	sidecar.DeclareServers(cmd)
	return cmd
}

func partNames() string {
	var names []string
	for _, p := range doctor.Parts() {
		names = append(names, string(p))
	}
	return strings.Join(names, "|")
}

func (f *doctorFlags) run(cmd *cobra.Command) error {
	inTheClear, err := f.read(cmd)
	if err != nil {
		return err
	}
	if err := f.cfg.Validate(); err != nil {
		return fmt.Errorf("%w (--help says how)", err)
	}
	r, err := doctor.Examine(cmd.Context(), f.cfg)
	if err != nil {
		return failed(err)
	}
	if inTheClear != "" {
		r.Warn("kafka", inTheClear, "kafka-tls")
	}
	w := cmd.OutOrStdout()
	if f.output.forPrograms() {
		err = f.output.encode(w, r)
	} else {
		err = printReport(w, r)
	}
	if err != nil {
		return failed(err)
	}
	if !r.OK() {
		return exit{status: exitFailed}
	}
	return nil
}

// read reads the servers and parts to check from flags, environment and the relay's file.
func (f *doctorFlags) read(cmd *cobra.Command) (inTheClear string, err error) {
	p := sidecar.Program{Environ: os.Environ()}
	servers, err := p.Servers(cmd)
	if err != nil {
		return "", err
	}
	f.cfg.Brokers, f.cfg.Kafka = servers.Brokers, servers.Kafka
	if servers.Database != nil {
		f.cfg.Database, f.cfg.Login = servers.Database.ConnConfig, servers.Database.BeforeConnect
	}
	if servers.Mapped {
		f.cfg.Parts = []doctor.Part{doctor.MappedRelay}
	}
	if len(f.parts) > 0 {
		f.cfg.Parts = nil
	}
	for _, part := range f.parts {
		f.cfg.Parts = append(f.cfg.Parts, doctor.Part(strings.TrimSpace(part)))
	}
	for _, text := range f.hops {
		hop, err := topics.ParseHop(text)
		if err != nil {
			return "", fmt.Errorf("--hop: %w", err)
		}
		f.cfg.Hops = append(f.cfg.Hops, hop)
	}
	if f.cfg.Flow == "" && len(f.cfg.Brokers) > 0 {
		f.cfg.Flow = os.Getenv("TROUPE_FLOW")
	}
	f.registry = cmp.Or(f.registry, os.Getenv("SCHEMA_REGISTRY_URL"))
	if f.registry != "" {
		if f.cfg.Registry, err = registry.New(f.registry); err != nil {
			return "", fmt.Errorf("--registry: %w", err)
		}
	}
	return servers.InTheClear, nil
}

// colourOf maps a level to the colour of its word on a terminal.
var colourOf = map[doctor.Level]string{doctor.OK: "32", doctor.Warning: "33", doctor.Failure: "31"}

// printReport writes the findings and the summary.
func printReport(w io.Writer, r *doctor.Report) error {
	var paint func(doctor.Level, string) string
	if colours(w) {
		paint = func(l doctor.Level, word string) string {
			if colourOf[l] == "" {
				return word
			}
			return "\x1b[" + colourOf[l] + "m" + word + "\x1b[0m"
		}
	}
	if err := r.Text(w, paint); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s, %s.\n", counted(r.Count(doctor.Failure), "failure", "failures"), counted(r.Count(doctor.Warning), "warning", "warnings"))
	return err
}
