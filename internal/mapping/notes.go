package mapping

import (
	"maps"
	"slices"
	"strings"
)

// routerNotes has notes for options of the transform itself that need no equivalent.
var routerNotes = map[string]string{
	"predicate":                       "the relay reads the outbox table only: there is nothing to select",
	"negate":                          "the relay reads the outbox table only: there is nothing to select",
	"tracing.operation.name":          "the relay carries the trace context on and makes no span of its own",
	"tracing.with.context.field.only": "a row without trace context is sent without, as with true",
	"field.name.adjustment.mode":      "names of the payload's members are never changed",
}

// A rule is the note for options that begin with prefix and that no other code has handled. The first rule that matches
// applies.
type rule struct {
	prefix string
	weight Weight
	text   string
}

const (
	bounded  = "the relay's queues are bounded by rows and bytes by themselves, down to the database"
	snapshot = "the relay takes no snapshot: with the slot taken over nothing is missing, with a new one rows from before it are read from the table"
	oneTable = "the relay reads the tables that the configuration names and no others"
	ownText  = "it matters for columns that are placed in headers or the envelope: those are sent as the page from-debezium says"
	inserts  = "the relay sees inserts only"
)

var rules = []rule{
	{"database.password", Moot, "it is not shown: give it to the relay by database-password-file or in OUTBOX_RELAY_DATABASE_PASSWORD"},
	{"database.sslpassword", Differs, "give the relay a key without password, readable by its user only"},
	{"database.sslfactory", Differs, "Java's socket factories have no equivalent: use sslmode and the files of certificates"},
	{"database.server.name", Moot, "it names the connector's own topics and offsets; an outbox row's topic does not have it"},
	{"database.", Moot, "the relay's sessions have their own settings"},
	{"topic.prefix", Moot, "it names the connector's own topics and offsets; an outbox row's topic does not have it"},
	{"topic.creation.", Differs, "the relay creates no topics: create them before the move"},
	{"topic.", Moot, "it names topics that are not the outbox's"},
	{"table.ignore.builtin", Moot, oneTable},
	{"table.", Moot, oneTable},
	{"schema.include.list", Moot, oneTable},
	{"schema.exclude.list", Moot, oneTable},
	{"schema.whitelist", Moot, oneTable},
	{"schema.refresh.mode", Moot, "columns are read by name from each Relation message"},
	{"schema.name.adjustment.mode", Moot, "messages have no Connect schema"},
	{"column.mask.", Differs, "values are sent unchanged: mask them when they are written"},
	{"column.truncate.", Differs, "values are sent unchanged: truncate them when they are written"},
	{"column.", Moot, "the relay reads the columns that the mapping names and no others"},
	{"message.key.columns", Moot, "the mapping defines the key, as after EventRouter"},
	{"message.prefix.", Moot, "the relay sends no logical decoding messages on"},
	{"publication.autocreate.mode", Moot, "the relay makes a publication of the outbox table where there is none, for inserts"},
	{"publish.via.partition.root", Moot, "the relay's own publication has it set"},
	{"slot.failover", Moot, "standbys copy the relay's slot by its setting failover, from Postgres 17 on by default"},
	{"slot.", Moot, "the relay tries again by itself, for as long as it runs"},
	{"heartbeat.action.query", Moot, "the relay's heartbeat is a message in the WAL: neither statement nor table is needed"},
	{"heartbeat.", Moot, "the relay's heartbeat does not go to Kafka"},
	{"lsn.flush.", Moot, "the relay confirms to Postgres what Kafka has acknowledged, and nothing else"},
	{"flush.lsn.source", Moot, "the relay confirms to Postgres what Kafka has acknowledged, and nothing else"},
	{"status.update.interval.ms", Moot, "the relay reports at 0.6 of wal_sender_timeout"},
	{"xmin.fetch.interval.ms", Moot, "the slot's figures are in the relay's metrics"},
	{"snapshot.", Moot, snapshot},
	{"incremental.snapshot.", Moot, snapshot},
	{"signal.", Moot, "the relay has actions at its admin address"},
	{"notification.", Moot, "the relay has a log, metrics and a status"},
	{"read.only", Moot, "it is about signals"},
	{"provide.transaction.metadata", Differs, "no topic tells of transactions"},
	{"transaction.", Moot, "it is about transactions' metadata, or Connect's; with exactly-once a Kafka transaction holds whole ones of Postgres"},
	{"extended.headers.enabled", Moot, "the headers __debezium.context.* are not written"},
	{"tombstones.on.delete", Moot, inserts},
	{"skipped.operations", Moot, inserts},
	{"skip.messages.without.change", Moot, inserts},
	{"replica.identity.", Moot, inserts},
	{"unavailable.value.placeholder", Moot, inserts},
	{"toasted.", Moot, inserts},
	{"max.batch.size", Moot, bounded},
	{"max.queue.", Moot, bounded},
	{"poll.", Moot, bounded},
	{"query.fetch.size", Moot, bounded},
	{"decimal.handling.mode", Differs, "a numeric is text, as with string: in headers and keys as before, in an envelope a JSON string"},
	{"time.precision.mode", Differs, "times are as with adaptive"},
	{"binary.handling.mode", Differs, "a bytea is sent as its bytes, as with bytes, and in headers and envelopes in base64"},
	{"hstore.handling.mode", Moot, ownText},
	{"interval.handling.mode", Moot, ownText},
	{"money.fraction.digits", Moot, ownText},
	{"include.unknown.datatypes", Moot, ownText},
	{"errors.tolerance", Differs, "what cannot be sent is parked, and its key waits; with all, Connect passes over it: discard parked rows instead"},
	{"errors.deadletterqueue.", Differs, "a row that cannot be sent is kept in the database, with its error, and not in a topic"},
	{"errors.", Moot, "what cannot be sent is parked with its error; a broker that is away is waited for"},
	{"event.", Differs, "a row that cannot be mapped is parked with its error"},
	{"retriable.", Moot, "the relay tries again by itself"},
	{"tasks.max", Moot, "one relay is active for a table, others stand by"},
	{"producer.override.", Differs, "the relay's producer waits for all replicas and has settings of its own; connection and security are set in its configuration"},
	{"predicates", Moot, "the relay reads the outbox table only: there is nothing to select"},
	{"transforms.", Moot, "it belongs to no transform that is named in transforms"},
	{"key.converter.", Moot, "the converter has no such option here"},
	{"value.converter.basic.auth.", Differs, "the registry's credentials are not shown: give them to the relay with its address"},
	{"value.converter.schema.registry.", Differs, "what the connection to the registry needs is set in the relay's configuration"},
	{"value.converter.auto.register.schemas", Moot, "the relay registers no schema of others"},
	{"value.converter.", Moot, "the converter has no such option here"},
	{"header.converter.", Moot, "the converter has no such option here"},
	{"offset.", Moot, "the relay's place is the slot's"},
	{"offsets.storage.", Moot, "the relay's place is the slot's"},
	{"config.action.reload", Moot, "the relay reads its configuration again when told so"},
	{"converters", Differs, "custom converters have no equivalent: columns are sent as the page from-debezium says"},
	{"post.processors", Differs, "post processors have no equivalent"},
	{"field.name.adjustment.mode", Moot, "names of columns and of the payload's members are never changed"},
	{"guardrail.", Moot, oneTable},
	{"openlineage.", Differs, "the relay reports no lineage"},
	{"custom.metric.tags", Moot, "add labels where you collect the metrics"},
	{"internal.", Moot, "it is internal to Debezium"},
}

// harmless holds, for options whose rule says Differs, the value with which nothing differs.
var harmless = map[string]string{
	"decimal.handling.mode":        "string",
	"time.precision.mode":          "adaptive",
	"binary.handling.mode":         "bytes",
	"errors.tolerance":             "none",
	"provide.transaction.metadata": "false",
}

// rest notes all options that no other code has handled.
func (r *reading) rest() {
	for _, name := range slices.Sorted(maps.Keys(r.options)) {
		if r.done[name] {
			continue
		}
		r.done[name] = true
		if v, has := harmless[name]; has && strings.EqualFold(strings.TrimSpace(r.options[name]), v) {
			continue
		}
		i := slices.IndexFunc(rules, func(k rule) bool { return strings.HasPrefix(name, k.prefix) })
		if i < 0 {
			r.note(name, Differs, "this option is not known: see whether its effect is needed")
			continue
		}
		r.note(name, rules[i].weight, rules[i].text)
	}
	if _, set := r.options["extended.headers.enabled"]; !set {
		r.note("extended.headers.enabled", Moot, "Debezium 3.6 adds headers __debezium.context.* unless this is false; the relay writes none of them")
	}
}
