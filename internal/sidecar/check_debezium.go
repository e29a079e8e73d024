package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/schemas"
)

// checkDebezium translates the configuration of a Debezium connector into one of a relay. It prints the configuration to standard
// output, so that you can redirect it into a file, and the options without an equivalent to standard error. As JSON both go to
// standard output.
func (p Program) checkDebezium(cmd *cobra.Command, path string) error {
	settings := slices.Concat(kafkaSettings, []setting{output})
	v, err := p.read(cmd, settings...)
	if err != nil {
		return err
	}
	form, err := v.oneOf(output)
	if err != nil {
		return err
	}
	c, err := readConnector(path)
	if err != nil {
		return usagef("debezium %s: %w", path, err)
	}
	r := doctor.Report{Findings: []doctor.Finding{}}
	slices.SortStableFunc(c.Notes, func(a, b mapping.Note) int { return cmp.Compare(b.Weight, a.Weight) })
	for _, n := range c.Notes {
		switch n.Weight {
		case mapping.Stops:
			r.Fail(n.Option, n.Text, "")
		case mapping.Differs:
			r.Warn(n.Option, n.Text, "")
		default:
			r.Info(n.Option, n.Text)
		}
	}
	if err := checkTopics(cmd.Context(), &r, v, c); err != nil {
		return err
	}
	entries := entriesOf(c)
	if form == "json" {
		err = printJSON(p.Stdout, map[string]any{"ok": r.OK(), "outboxes": entries, "findings": r.Findings})
	} else if _, err = io.WriteString(p.Stdout, entriesYAML(c, entries)); err == nil {
		err = printOptions(p.Stderr, r.Findings)
	}
	if err == nil && !r.OK() {
		return reported{errors.New("the connector cannot be replaced as it is")}
	}
	return err
}

// checkTopics reports the topics that rows can go to. Without brokers it says so.
func checkTopics(ctx context.Context, r *doctor.Report, v values, c mapping.Connector) error {
	m, err := mapping.New(c.Mapping)
	if err != nil {
		return nil // the finding of its option reports it
	}
	replacement := cmp.Or(c.Mapping.Options()["route.topic.replacement"], m.Config().RouteReplacement)
	rule := fmt.Sprintf("rows go to the topic %s, by the column %s", replacement, m.Config().RouteBy)
	if v.text[brokers.name] == "" {
		r.Info("topics", rule+"; the relay creates none, and no brokers are named here to see which there are: set "+brokers.variable())
		return nil
	}
	addresses, err := v.brokerList()
	if err != nil {
		return err
	}
	opts, err := v.kafka()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	names, err := topicsLike(ctx, addresses, opts, m.TopicPattern())
	switch {
	case err != nil:
		r.Fail("topics", "the brokers were asked for the topics: "+err.Error(), "")
	case len(names) == 0:
		r.Fail("topics", rule+", and there is no such topic: create one for each value of the column, since the relay creates none", "")
	default:
		r.Info("topics", fmt.Sprintf("%s; there are %s: create the missing ones, since the relay creates none", rule, shownTopics(names)))
	}
	return nil
}

// shownTopics lists at most ten names.
func shownTopics(names []string) string {
	if len(names) > 10 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), len(names)-10)
	}
	return strings.Join(names, ", ")
}

// topicsLike returns the names of the topics that fit the pattern.
func topicsLike(ctx context.Context, addresses []string, opts []kgo.Opt, pattern *regexp.Regexp) (names []string, err error) {
	client, err := kgo.NewClient(append(slices.Clone(opts), kgo.SeedBrokers(addresses...))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range all.Names() {
		if pattern.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// printOptions prints the findings like Report.Text, in a layout for the long names of options.
func printOptions(to io.Writer, findings []doctor.Finding) error {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %s\n%-8s %s\n", f.Level, f.Name, "", f.Found)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func readConnector(path string) (mapping.Connector, error) {
	f, err := os.Open(path)
	if err != nil {
		return mapping.Connector{}, errors.Unwrap(err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 2<<20)) // FromConnector refuses less than that
	if err != nil {
		return mapping.Connector{}, err
	}
	return mapping.FromConnector(text)
}

// A connectorEntry is one outbox in the file of --config.
type connectorEntry struct {
	Settings map[string]string `json:"settings"`
	Mapping  map[string]string `json:"mapping"`
}

// entryOrder is the order in which the settings of an entry are printed.
var entryOrder = []string{
	"name", "database-url", "database-tls-ca", "database-tls-cert", "database-tls-key", "source", "delivery", "slot", "publication",
	"registry", "subject-strategy",
}

// entriesOf returns an entry for each table. The first entry has the connector's slot, the others have slots that are copied from
// it.
func entriesOf(c mapping.Connector) []connectorEntry {
	files := map[string]string{"sslrootcert": "database-tls-ca", "sslcert": "database-tls-cert", "sslkey": "database-tls-key"}
	entries := make([]connectorEntry, 0, len(c.Tables))
	for i, table := range c.Tables {
		settings := map[string]string{"name": entryNameOf(c.Name, i), "source": "wal"}
		add := func(name, value string) {
			if value != "" {
				settings[name] = value
			}
		}
		add("database-url", c.Database.URL())
		for option, path := range c.Database.Files {
			add(files[option], path)
		}
		if c.ExactlyOnce {
			add("delivery", "exactly-once")
		}
		if slot := c.SlotOf(i); slot != "" {
			add("slot", slot)
			add("publication", c.Publication)
		}
		add("registry", c.Registry)
		if s, err := schemas.ParseStrategy(c.Strategy); err == nil {
			add("subject-strategy", string(s))
		}
		columns := c.Mapping.Options()
		columns["table"] = table
		entries = append(entries, connectorEntry{settings, columns})
	}
	return entries
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func entryNameOf(connector string, i int) string {
	name := cmp.Or(strings.Trim(notInNames.ReplaceAllString(strings.ToLower(connector), "-"), "-"), "outbox")
	name = strings.TrimRight(name[:min(len(name), 50)], "-")
	if i > 0 {
		name += "-" + strconv.Itoa(i+1)
	}
	return name
}

func entriesYAML(c mapping.Connector, entries []connectorEntry) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	name := cmp.Or(c.Name, "without a name")
	line("# From Debezium's connector %s. Not in it, and needed: brokers, and the database's password,", quoteYAML(name))
	line("# by database-password-file or in OUTBOX_RELAY_DATABASE_PASSWORD.")
	line("outboxes:")
	for _, e := range entries {
		dash := "  - "
		for _, key := range entryOrder {
			if value, set := e.Settings[key]; set {
				line("%s%s: %s", dash, key, quoteYAML(value))
				dash = "    "
			}
		}
		line("    mapping:")
		line("      table: %s", quoteYAML(e.Mapping["table"]))
		for _, key := range slices.Sorted(maps.Keys(e.Mapping)) {
			if key != "table" {
				line("      %s: %s", key, quoteYAML(e.Mapping[key]))
			}
		}
	}
	if len(entries) == 0 {
		line("  [] # the connector names no table")
	}
	return b.String()
}

// plainYAML matches text that needs no quotes: no number, and no word that YAML reads as another type except true and false.
var plainYAML = regexp.MustCompile(`^[a-z][a-zA-Z0-9_.:/@?=-]*$`)

func quoteYAML(text string) string {
	if plainYAML.MatchString(text) && !strings.HasSuffix(text, ":") && !slices.Contains([]string{"yes", "no", "on", "off", "null", "y", "n"}, text) {
		return text
	}
	return strconv.QuoteToASCII(text) // YAML's double-quoted strings have all of Go's escapes
}
