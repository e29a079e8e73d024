package relay

// keys is a set of the keys of rows. A row without a key is never in it.
type keys map[string]struct{}

func (k keys) has(i *item) bool {
	if i.key == nil {
		return false
	}
	_, held := k[string(i.key)]
	return held
}

func (k keys) add(i *item) {
	if i.key != nil {
		k[string(i.key)] = struct{}{}
	}
}

// A batchID identifies a record batch of one send.
type batchID struct {
	topic     string
	partition int32
}

func batchOf(i *item) batchID { return batchID{i.record.Topic, i.record.Partition} }

// A batchSize is the size of a record batch that was refused.
type batchSize struct {
	rows, bytes int
	byClock     bool // the broker refuses the time of sending of all rows of the batch: smaller batches do not help
}

// sizes returns the sizes of the batches that failed. It counts the items with an error, since a batch fails with all of its items.
func sizes(items []*item) map[batchID]batchSize {
	var of map[batchID]batchSize
	for _, i := range items {
		if i.err == nil {
			continue
		}
		if of == nil {
			of = make(map[batchID]batchSize)
		}
		s, others := of[batchOf(i)]
		of[batchOf(i)] = batchSize{s.rows + 1, s.bytes + i.size, byClock(i, i.err) && (!others || s.byClock)}
	}
	return of
}
