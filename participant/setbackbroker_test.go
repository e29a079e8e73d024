package participant_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// copyDisks copies the broker's disks while it does not run.
func (h *setBackHistory) copyDisks() {
	h.cutOff = h.cutOff || h.losses > 0
	h.restart(func() {
		h.images++
		h.image = filepath.Join(h.t.TempDir(), fmt.Sprint(h.images))
		require.NoError(h.t, os.CopyFS(h.image, os.DirFS(h.dir)))
		err := os.Remove(filepath.Join(h.image, "session_state.json"))
		require.True(h.t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)
	})
}

func (h *setBackHistory) restart(meanwhile func()) {
	h.cluster.Close()
	meanwhile()
	h.startBroker()
}

// restore gives the broker the copy of its disks.
func (h *setBackHistory) restore() {
	if h.image == "" {
		return
	}
	h.lose(func() {
		require.NoError(h.t, os.RemoveAll(h.dir))
		require.NoError(h.t, os.CopyFS(h.dir, os.DirFS(h.image)))
	})
}

// cut gives one log the end that it has in the copy of the disks.
func (h *setBackHistory) cut(partition int32, laterEpoch bool) {
	name := filepath.Join("partitions", fmt.Sprintf("%s-%d", h.bank.Events(), partition))
	if _, err := os.Stat(filepath.Join(h.image, name, "snapshot.json")); h.image == "" || err != nil {
		return
	}
	h.lose(func() {
		at := filepath.Join(h.dir, name)
		before := readSnapshot(h.t, at)
		require.NoError(h.t, os.RemoveAll(at))
		require.NoError(h.t, os.CopyFS(at, os.DirFS(filepath.Join(h.image, name))))
		if laterEpoch {
			snapshot := readSnapshot(h.t, at)
			snapshot["epoch"] = before["epoch"].(float64) + 1
			text, err := json.Marshal(snapshot)
			require.NoError(h.t, err)
			require.NoError(h.t, os.WriteFile(filepath.Join(at, "snapshot.json"), text, 0o600))
		}
	})
}

func readSnapshot(t *testing.T, dir string) (snapshot map[string]any) {
	text, err := os.ReadFile(filepath.Join(dir, "snapshot.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &snapshot))
	return snapshot
}

// lose restarts the broker, whose disks do sets back.
func (h *setBackHistory) lose(do func()) {
	before := h.ends()
	for n, m := range h.sent {
		m.passed = h.unseen(m)
		h.sent[n] = m
	}
	var low [2]int64
	for i := range before {
		low[i] = h.counted(i)
	}
	running := h.running()
	h.restart(do)
	for i, end := range h.ends() {
		if end >= before[i] {
			continue
		}
		h.losses++
		used := &h.used[i]
		used.grown = used.grown && used.pending // the messages of a loss that was noticed are handled
		if !used.pending || low[i] < used.low {
			used.low = low[i]
		}
		used.exact = !running || low[i] == before[i]
		used.end, used.pending = max(used.end, before[i]), true
		used.grown = used.grown || end >= used.low
		for n, m := range h.sent {
			if m.partition == int32(i) && m.offset >= end && m.offset < before[i] {
				m.offset = -1
				h.sent[n] = m
			}
		}
	}
}
