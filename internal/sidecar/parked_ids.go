package sidecar

import (
	"github.com/google/uuid"

	desk "github.com/troupe-go/troupe/internal/admin/relaydesk"
)

// rowIDs returns the rows of a topic that have the ids; "": of any topic.
func rowIDs(topic string, ids []uuid.UUID) []desk.RowID {
	rows := make([]desk.RowID, len(ids))
	for n, id := range ids {
		rows[n] = desk.RowID{ID: id, Topic: topic}
	}
	return rows
}

func parseIDs(args []string) ([]uuid.UUID, error) {
	if len(args) == 0 {
		return nil, usagef("no id: want one or more, as outbox-relay parked list prints them")
	}
	ids := make([]uuid.UUID, len(args))
	for n, arg := range args {
		id, err := uuid.Parse(arg)
		if err != nil {
			return nil, usagef("id %q: want a UUID, as outbox-relay parked list prints it", arg)
		}
		ids[n] = id
	}
	return ids, nil
}
