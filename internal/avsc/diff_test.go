package avsc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/avsc"
)

func TestDiffSaysWhatChanged(t *testing.T) {
	t.Parallel()
	old := `{"type":"record","name":"shop.Order","doc":"An order","fields":[
		{"name":"id","type":"string"},
		{"name":"cents","type":"int"},
		{"name":"buyer","type":"string"},
		{"name":"note","type":"string","default":"none"},
		{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
		{"name":"sum","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
		{"name":"hash","type":{"type":"fixed","name":"Hash","size":16}},
		{"name":"state","type":{"type":"enum","name":"State","symbols":["OPEN","PAID","LOST"]}},
		{"name":"contact","type":["null","string"],"default":null},
		{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"},{"name":"next","type":["null","Line"]}]}}}]}`
	next := `{"type":"record","name":"shop.Order","doc":"An order of a customer","aliases":["shop.Purchase"],"fields":[
		{"name":"cents","type":"long"},
		{"name":"id","type":"string","doc":"the key"},
		{"name":"customer","aliases":["buyer"],"type":"string"},
		{"name":"currency","type":["null","string"],"default":null},
		{"name":"at","type":"long"},
		{"name":"sum","type":{"type":"bytes","logicalType":"decimal","precision":11,"scale":2}},
		{"name":"hash","type":{"type":"fixed","name":"Hash","size":20}},
		{"name":"state","type":{"type":"enum","name":"State","symbols":["PAID","OPEN","SENT"],"default":"OPEN"}},
		{"name":"contact","type":["null",{"type":"map","values":"string"}],"default":null},
		{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string","default":"-"},{"name":"next","type":["null","Line"]}]}}}]}`
	changes, err := avsc.Diff(avsc.Version{Avsc: old}, avsc.Version{Avsc: next})
	require.NoError(t, err)
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	require.Equal(t, []string{
		"aliases added: shop.Purchase",
		"cents: type int became long",
		"id: documentation changed",
		"customer: renamed from buyer",
		"customer: aliases added: buyer",
		"currency: added, union of null, string, default null",
		"at: logical type timestamp-millis became none",
		"sum: logical type decimal 9,2 became decimal 11,2",
		"hash: size 16 became 20",
		"state: symbols added: SENT",
		"state: symbols removed: LOST",
		"state: symbols are in another order: PAID, OPEN, SENT",
		"state: default symbol none became OPEN",
		"contact: branches added: map",
		"contact: branches removed: string",
		`lines[].sku: no default became default "-"`,
		`note: removed, was string, default "none"`,
		"fields are in another order: cents, id, buyer, at, sum, hash, state, contact, lines",
		"documentation changed",
	}, lines)

	none, err := avsc.Diff(avsc.Version{Avsc: old}, avsc.Version{Avsc: " " + old})
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = avsc.Diff(avsc.Version{Label: "a"}, avsc.Version{Label: "b", Avsc: old})
	require.ErrorContains(t, err, "a: ")
	_, err = avsc.Diff(avsc.Version{Label: "a", Avsc: old}, avsc.Version{Label: "b"})
	require.ErrorContains(t, err, "b: ")
}
