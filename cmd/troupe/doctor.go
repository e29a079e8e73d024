package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/schemas"
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
		Short: "Examine database, Kafka and registry, and say what to do about each finding",
		Long: `doctor looks at the servers that a service and its relay use, with their own rights, and changes nothing. What is not
named is not looked at. It takes the relay's settings, so that it examines what a relay with the same file or environment would
meet; relay-reference.md says each of them.

It looks at the database (reached, version, standby, pooler, durability, connections, clock, migrations beside this program's),
at the rights of the role for each part that --as names, at the log and its slots, at positions that are left and rows that are
parked; at Kafka (each broker at the address that it gives out, versions, features) and at topics: those that rows wait for,
those of --flow and of --hop (there, led, replicas, min.insync.replicas, cleanup, retention, what this client may do); and at the
registry. Missing rights come as the GRANTs that give them.

Parts: relay, mapped-relay, participant, local (participant.Config.Local), saga and flow (each beside participant), watch,
operator (troupe dlq, held, inbox) and saga-operator (troupe saga). One with --role NAME looks at the rights of another role,
where the one that connects may become it.

Exit status: 0 nothing would stop anything (warnings do not count), 1 something would, 2 wrong usage.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop KAFKA_BROKERS=127.0.0.1:9092 troupe doctor --flow order
  troupe doctor --config relay.yaml --outbox payment --as relay
  troupe doctor --as participant,saga --role order_service
  troupe doctor --hop order.payment --output json | jq '.findings[] | select(.level == "failure")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.parts, "as", nil, "what the role is for, repeatable: `"+partNames()+"` (default: relay and participant; with a mapping mapped-relay)")
	flags.StringVar(&f.cfg.Role, "role", "", "`name` of the role whose rights are looked at (default: who connects)")
	flags.StringVar(&f.cfg.Flow, "flow", "", "`name` of a flow: all of its topics are looked at [TROUPE_FLOW]")
	flags.StringSliceVar(&f.hops, "hop", nil, "`flow.hop` whose topics must be there, repeatable")
	flags.StringVar(&f.registry, "registry", "", "`URL` of the schema registry [TROUPE_REGISTRY]")
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
	if inTheClear {
		r.Warn("kafka", "kafka-sasl plain without TLS: the password crosses the network as it is", "kafka-tls")
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
func (f *doctorFlags) read(cmd *cobra.Command) (inTheClear bool, err error) {
	p := sidecar.Program{Environ: os.Environ()}
	servers, err := p.Servers(cmd)
	if err != nil {
		return false, err
	}
	f.cfg.Brokers, f.cfg.Kafka = servers.Brokers, servers.Kafka
	if servers.Database != nil {
		f.cfg.Database = servers.Database.ConnConfig
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
			return false, fmt.Errorf("--hop: %w", err)
		}
		f.cfg.Hops = append(f.cfg.Hops, hop)
	}
	if f.cfg.Flow == "" && len(f.cfg.Brokers) > 0 {
		f.cfg.Flow = os.Getenv("TROUPE_FLOW")
	}
	if f.registry == "" {
		f.registry = os.Getenv("TROUPE_REGISTRY")
	}
	if f.registry != "" {
		if f.cfg.Registry, err = schemas.NewRegistry(f.registry); err != nil {
			return false, fmt.Errorf("--registry: %w", err)
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
