package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// maxSagaFile bounds the bytes read of a file. It is above the limit of a definition, so that a larger one is refused and not
// cut.
const maxSagaFile = 1<<20 + 1

func newSagaVerify() *cobra.Command {
	var (
		output  format
		hops    string
		schemas []string
	)
	cmd := &cobra.Command{
		Use:   "verify [flags] FILE…",
		Short: "Verify definitions before they run",
		Long: `verify reports errors of definitions: steps that never begin, joins that never complete, missing compensations, time-outs
that are shorter than the legal retries, variables that are not set, and more. It runs nothing and changes nothing.
docs/verifier.md describes each rule.

--hops names a JSON file that lists the commands that each hop handles and the events that it emits:
  {"payment": {"consumes": ["ChargePayment"], "emits": ["PaymentCharged", "PaymentRefused"]}}
With it verify also finds commands without a handler and events without a sender.

--schemas names files, or folders, with the schemas of messages, as troupe schema check reads them. With it verify also finds expressions
that name a field which the message does not have, take its value for another type, or fail if an optional field is null; and expressions
that read a field whose schema marks it as personal: a saga sees the encrypted text. Without the schema of an event verify says on stderr
that its fields were not checked.

Exit status: 0 no errors (warnings do not count), 1 errors, 2 a file cannot be read.`,
		Example: `  troupe saga verify order.saga.json
  troupe saga verify --hops hops.json --output sarif *.saga.json > verify.sarif
  troupe saga verify --schemas schemas/ order.saga.json
  troupe saga verify --output mermaid order.saga.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			var o verify.Options
			if hops != "" {
				if err := readHops(hops, &o); err != nil {
					return err
				}
			}
			if len(schemas) > 0 {
				if err := readTypes(schemas, &o); err != nil {
					return fmt.Errorf("--schemas: %w", err)
				}
			}
			all, err := verified(paths, o)
			if err != nil {
				return err
			}
			if err := printVerified(cmd.OutOrStdout(), all, output); err != nil {
				return failed(err)
			}
			if err := printUnchecked(cmd.ErrOrStderr(), all); err != nil {
				return failed(err)
			}
			for _, v := range all {
				for _, f := range v.Findings {
					if f.Severity == rule.Error {
						return exit{status: exitFailed}
					}
				}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	output.declare(cmd, inSARIF, inMermaid)
	cmd.Flags().StringVar(&hops, "hops", "", "JSON `file` with the commands and events of each hop")
	cmd.Flags().StringArrayVar(&schemas, "schemas", nil, "`file` or folder with schemas of messages; may be repeated")
	return cmd
}

// verifiedSaga is a file with its findings; it has no definition if the file has none.
type verifiedSaga struct {
	verify.Report
	definition *saga.Definition
}

func verified(paths []string, o verify.Options) ([]verifiedSaga, error) {
	var all []verifiedSaga
	var texts [][]byte
	var ds []*saga.Definition
	for _, path := range paths {
		text, err := readUpTo(path, maxSagaFile)
		if err != nil {
			return nil, err
		}
		d, found := verify.JSON(text, o)
		texts, ds = append(texts, text), append(ds, d)
		report := verify.Report{File: path, Findings: found}
		if d != nil {
			report.Unchecked = verify.Unchecked(d, o)
		}
		all = append(all, verifiedSaga{report, d})
	}
	for i, found := range verify.Together(ds) {
		verify.Lines(texts[i], found)
		all[i].Findings = append(all[i].Findings, found...)
	}
	return all, nil
}

// readUpTo reads up to limit bytes of a file.
func readUpTo(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, limit))
}

// readDefinition reads a definition from a file.
func readDefinition(path string) (*saga.Definition, error) {
	text, err := readUpTo(path, maxSagaFile)
	if err != nil {
		return nil, err
	}
	d, err := saga.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

func readHops(path string, o *verify.Options) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--hops: %w", err)
	}
	defer func() { _ = f.Close() }()
	dec := json.NewDecoder(io.LimitReader(f, maxSagaFile))
	dec.DisallowUnknownFields()
	o.Hops = map[string]verify.Hop{}
	if err := dec.Decode(&o.Hops); err != nil {
		return fmt.Errorf("--hops: %s: want such as {\"payment\": {\"consumes\": […], \"emits\": […]}}: %w", path, err)
	}
	return nil
}

// readTypes reads the fields, and the personal ones of them, of all types that schema files declare.
func readTypes(paths []string, o *verify.Options) error {
	files, err := readFiles(paths)
	if err != nil {
		return err
	}
	o.Personal, o.Types = make(map[string]map[string]string, len(files)), make(map[string]*expr.Shape, len(files))
	for _, f := range files {
		if o.Personal[f.subject], err = f.personal(); err != nil {
			return err
		}
		if o.Types[f.subject], err = f.shape(); err != nil {
			return err
		}
	}
	return nil
}

// printUnchecked names the events whose fields were not checked.
func printUnchecked(w io.Writer, all []verifiedSaga) error {
	for _, v := range all {
		if len(v.Unchecked) == 0 {
			continue
		}
		const note = "%s: note: the fields of %s were not checked: give the schemas of these events with --schemas\n"
		if _, err := fmt.Fprintf(w, note, v.File, strings.Join(v.Unchecked, ", ")); err != nil {
			return err
		}
	}
	return nil
}

func printVerified(w io.Writer, all []verifiedSaga, output format) error {
	switch output.is {
	case inSARIF:
		text, err := verify.SARIF(reports(all))
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	case inMermaid:
		return printMermaid(w, all)
	case inTable:
		return printFindings(w, all)
	}
	return output.encode(w, reports(all))
}

func printFindings(w io.Writer, all []verifiedSaga) error {
	for _, v := range all {
		for _, f := range v.Findings {
			if _, err := fmt.Fprintf(w, "%s:%d: %s\n", v.File, max(1, f.Line), f); err != nil {
				return err
			}
		}
	}
	return nil
}

func reports(all []verifiedSaga) []verify.Report {
	rs := make([]verify.Report, len(all))
	for i, v := range all {
		rs[i] = v.Report
		if rs[i].Findings == nil {
			rs[i].Findings = []verify.Finding{}
		}
	}
	return rs
}

func printMermaid(w io.Writer, all []verifiedSaga) error {
	for _, v := range all {
		if v.definition == nil {
			return fmt.Errorf("%s: it is no definition and cannot be drawn: %s", v.File, v.Findings[0])
		}
		if _, err := io.WriteString(w, verify.Mermaid(v.definition, v.Findings)); err != nil {
			return err
		}
	}
	return nil
}
