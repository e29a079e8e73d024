package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// TimeCursor returns the cursor of a page that ends with the row of that time and id, in a list that is ordered by both. A cursor
// is the position where the next page begins; only the functions of this package read it.
func TimeCursor(at time.Time, id string) string {
	return at.UTC().Format(time.RFC3339Nano) + "," + id
}

// NumberCursor is TimeCursor for a list that is ordered by a number and an id.
func NumberCursor(n int64, id string) string { return strconv.FormatInt(n, 10) + "," + id }

// ReadTimeCursor returns the time and the id of a TimeCursor. The error is a FieldError.
func ReadTimeCursor(cursor string) (at time.Time, id string, err error) {
	first, id, found := strings.Cut(cursor, ",")
	if at, err = time.Parse(time.RFC3339Nano, first); err != nil || !found {
		return at, id, notCursor(cursor)
	}
	return at, id, nil
}

// ReadUUIDCursor is ReadTimeCursor for rows whose ids are UUIDs.
func ReadUUIDCursor(cursor string) (at time.Time, id uuid.UUID, err error) {
	at, text, err := ReadTimeCursor(cursor)
	if err != nil {
		return at, id, err
	}
	if id, err = uuid.Parse(text); err != nil {
		return at, id, notCursor(cursor)
	}
	return at, id, nil
}

// ReadNumberCursor returns the number and the id of a NumberCursor. The error is a FieldError.
func ReadNumberCursor(cursor string) (n int64, id string, err error) {
	first, id, found := strings.Cut(cursor, ",")
	if n, err = strconv.ParseInt(first, 10, 64); err != nil || !found {
		return n, id, notCursor(cursor)
	}
	return n, id, nil
}

func notCursor(text string) error {
	return FieldError{"after", fmt.Sprintf("%.100q: want the cursor that the previous page returned", text)}
}
