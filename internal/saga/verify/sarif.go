package verify

import (
	"bytes"
	"encoding/json"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/troupe-go/troupe/internal/rule"
)

// A Report holds the findings of one file.
type Report struct {
	File     string    `json:"file"`
	Findings []Finding `json:"findings"`
	// Unchecked lists the types of events whose fields are read and not checked, since their schemas are not known.
	Unchecked []string `json:"unchecked,omitempty"`
}

// These constants identify the SARIF schema and this tool.
const (
	sarifSchema  = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	sarifVersion = "2.1.0"
	sarifTool    = "troupe saga verify"
	sarifHome    = "https://github.com/troupe-go/troupe/blob/main/docs/verifier.md"
)

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifToolOf   `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifToolOf struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Home  string      `json:"informationUri"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string       `json:"id"`
		Short   sarifText    `json:"shortDescription"`
		Full    sarifText    `json:"fullDescription"`
		HelpURI string       `json:"helpUri"`
		Default sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level rule.Severity `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     rule.Severity   `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
		Flows     []sarifFlow     `json:"codeFlows,omitempty"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
		Message  *sarifText     `json:"message,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
	}
	sarifFlow struct {
		Threads []sarifThread `json:"threadFlows"`
	}
	sarifThread struct {
		Locations []sarifStep `json:"locations"`
	}
	sarifStep struct {
		Location sarifLocation `json:"location"`
	}
)

// SARIF returns reports in the Static Analysis Results Interchange Format, version 2.1.0, which code hosts show next to the
// lines. A trace becomes a code flow.
func SARIF(reports []Report) ([]byte, error) {
	run := sarifRun{Tool: sarifToolOf{Driver: sarifDriver{Name: sarifTool, Home: sarifHome}}, Results: []sarifResult{}}
	for _, r := range rules {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: r.ID, Short: sarifText{r.Title}, Full: sarifText{r.Reason}, HelpURI: sarifHome + "#" + r.ID, Default: sarifDefault{r.Severity},
		})
	}
	for _, report := range reports {
		for _, f := range report.Findings {
			run.Results = append(run.Results, result(report.File, f))
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(sarifLog{sarifSchema, sarifVersion, []sarifRun{run}})
	return b.Bytes(), err
}

func result(file string, f Finding) sarifResult {
	uri := url.URL{Path: filepath.ToSlash(filepath.Clean(file))}
	if filepath.IsAbs(file) {
		uri.Scheme = "file"
	}
	at := sarifLocation{Physical: &sarifPhysical{Artifact: sarifArtifact{uri.String()}}}
	if f.Line > 0 {
		at.Physical.Region = &sarifRegion{f.Line}
	}
	if f.Path != "" {
		at.Logical = []sarifLogical{{f.Path}}
	}
	r := sarifResult{
		RuleID: f.Rule, RuleIndex: slices.IndexFunc(rules, func(r rule.Rule) bool { return r.ID == f.Rule }), Level: f.Severity,
		Message: sarifText{f.Text}, Locations: []sarifLocation{at},
	}
	if len(f.Trace) > 0 {
		var thread sarifThread
		for _, line := range f.Trace {
			thread.Locations = append(thread.Locations, sarifStep{sarifLocation{Physical: at.Physical, Message: &sarifText{line}}})
		}
		r.Flows = []sarifFlow{{[]sarifThread{thread}}}
	}
	return r
}
