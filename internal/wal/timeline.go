package wal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// undefinedFile is the SQLSTATE of a server that has no history file of the timeline. There is none of the first timeline.
const undefinedFile = "58P01"

// TimelineEnd returns the LSN at which an earlier timeline ends in the history of timeline. It is 0 if timeline does not
// descend from the earlier one, or if the server has no history of it.
func (c *Conn) TimelineEnd(ctx context.Context, timeline, earlier int32) (LSN, error) {
	row, err := c.row(ctx, fmt.Sprintf("TIMELINE_HISTORY %d", timeline), 2)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == undefinedFile:
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
	}
	// Each line has a timeline, the LSN of its end, and the reason. Other lines are comments.
	for line := range strings.Lines(row[1]) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != strconv.Itoa(int(earlier)) {
			continue
		}
		end, err := ParseLSN(fields[1])
		if err != nil {
			return 0, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
		}
		return end, nil
	}
	return 0, nil
}
