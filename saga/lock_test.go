package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// TestALockIsTheTextOfItsValueWhateverItsType has a lock on a variable of type any: one caller has the account as a text, another one as a number.
func TestALockIsTheTextOfItsValueWhateverItsType(t *testing.T) {
	const text = `{"saga":"transfer","version":1,"key":"id","data":{"id":"string","account":"any"},"lock":"data.account",
 "steps":[{"name":"book","command":{"hop":"ledger","type":"Book"},"success":[{"event":"Booked"}],"irreversible":"a test"}]}`
	d := parse(t, text)
	for name, c := range map[string]struct {
		account any
		lock    string
	}{
		"a text": {"4711", "4711"}, "a number": {int64(4711), "4711"}, "a whole double": {4711.0, "4711"}, "a bool": {true, "true"},
		"an empty text": {"", ""}, "null": {nil, ""},
	} {
		lock, err := d.Lock(map[string]any{"account": c.account})
		require.NoError(t, err, name)
		require.Equal(t, c.lock, lock, name)
	}

	f := sagatest.New(t, d)
	for i, account := range []any{4711, "4711", 4711.0} {
		id := "t-" + string(rune('1'+i))
		f.WhenStarted("transfer", sagatest.Fields{"id": id, "account": account})
		want := saga.Waiting
		if i == 0 {
			want = saga.Running
		}
		f.ThenStatus("transfer/"+id, want)
	}
}
