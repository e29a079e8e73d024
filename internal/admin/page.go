package admin

import (
	"github.com/jackc/pgx/v5"
)

// PageBytes is the size of a page's rows at which Collect ends the page. A message's key and ids have up to a megabyte each, and a page
// has up to a thousand rows.
const PageBytes = 2 << 20

// Collect collects the rows of a page: limit of them, or fewer if they have PageBytes already, but at least one. more reports
// whether rows follow. It closes rows.
func Collect[T any](rows pgx.Rows, limit int, scan pgx.RowToFunc[T]) (page []T, more bool, err error) {
	defer rows.Close()
	page = []T{}
	for size := 0; rows.Next(); {
		if len(page) == limit || size >= PageBytes {
			more = true
			break
		}
		for _, value := range rows.RawValues() {
			size += len(value)
		}
		one, err := scan(rows)
		if err != nil {
			return nil, false, err
		}
		page = append(page, one)
	}
	rows.Close()
	return page, more, rows.Err()
}
