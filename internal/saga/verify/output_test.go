package verify_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

func TestSARIFHasWhatItsStandardRequires(t *testing.T) {
	t.Parallel()
	found := find(t, files("no-way-back", "bad"), "")
	text, err := verify.SARIF([]verify.Report{{File: "some folder/order.saga.json", Findings: found}, {File: "good.saga.json"}})
	require.NoError(t, err)
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID               string
						ShortDescription struct{ Text string }
						HelpURI          string
					}
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
				CodeFlows []struct {
					ThreadFlows []struct {
						Locations []struct {
							Location struct{ Message struct{ Text string } }
						}
					}
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &log))
	require.Equal(t, "2.1.0", log.Version)
	require.Contains(t, log.Schema, "sarif-schema-2.1.0.json")
	require.Len(t, log.Runs, 1)
	driver := log.Runs[0].Tool.Driver
	require.NotEmpty(t, driver.Name)
	require.Len(t, driver.Rules, len(verify.Rules()))
	require.Len(t, log.Runs[0].Results, 1)
	r := log.Runs[0].Results[0]
	require.Equal(t, "no-way-back", r.RuleID)
	require.Equal(t, r.RuleID, driver.Rules[r.RuleIndex].ID)
	require.Contains(t, []string{"none", "note", "warning", "error"}, r.Level)
	require.NotEmpty(t, r.Message.Text)
	require.Equal(t, 18, r.Locations[0].PhysicalLocation.Region.StartLine)
	uri, err := url.Parse(r.Locations[0].PhysicalLocation.ArtifactLocation.URI)
	require.NoError(t, err)
	require.Equal(t, "some folder/order.saga.json", uri.Path)
	require.Equal(t, "shipping: fails", r.CodeFlows[0].ThreadFlows[0].Locations[2].Location.Message.Text)
}

func TestSARIFWithoutFindingsSaysThatItRan(t *testing.T) {
	t.Parallel()
	text, err := verify.SARIF(nil)
	require.NoError(t, err)
	require.Contains(t, string(text), `"results": []`)
}

func TestMermaidMarksThePathThatBreaks(t *testing.T) {
	t.Parallel()
	d, err := saga.Parse(read(t, "no-way-back.bad.saga.json"))
	require.NoError(t, err)
	require.Equal(t, `%% order v1
flowchart TD
    s0["payment<br/>ChargePayment → payment"]
    s0 -.-> u0(["RefundPayment → payment"])
    s1["inventory<br/>ReserveStock → inventory"]
    s0 --> s1
    s2{{"shipping<br/>ShipOrder → shipping<br/>pivot"}}
    s1 --> s2
    found["no-way-back: inventory stays done when shipping fails; give it a compensation, or say in irreversible why it needs none<br/>payment: done<br/>inventory: done<br/>shipping: fails"]
    classDef way stroke:#b45309,stroke-width:3px
    class s0,s1,s2 way
    classDef error fill:#fecaca
    class s1 error
    classDef note text-align:left,fill:#fff
    class found note
    linkStyle 1,2 stroke:#b45309,stroke-width:3px
`, verify.Mermaid(d, verify.Definition(d, verify.Options{})))
}

func TestMermaidTakesNoTextForItsOwn(t *testing.T) {
	t.Parallel()
	d, err := saga.Parse(read(t, "join-never.bad.saga.json"))
	require.NoError(t, err)
	drawn := verify.Mermaid(d, nil)
	require.Contains(t, drawn, `s0 -->|"data.kilos #lt;= 30"| s1`)
	require.NotContains(t, strings.ReplaceAll(drawn, "<br/>", ""), "<")
}

// TestFindingsAreTheSameEveryTime checks that the findings do not depend on the order of a map.
func TestFindingsAreTheSameEveryTime(t *testing.T) {
	t.Parallel()
	text := read(t, "published-a.saga.json")
	_, first := verify.JSON(text, verify.Options{})
	for range 20 {
		_, again := verify.JSON(text, verify.Options{})
		require.Equal(t, first, again)
	}
}

func TestTheDemosDefinitionHasNoErrors(t *testing.T) {
	t.Parallel()
	_, found := verify.JSON(read(t, "../../../../saga/testdata/order.saga.json"), verify.Options{})
	for _, f := range found {
		require.NotEqual(t, rule.Error, f.Severity, "%s", f)
	}
}
