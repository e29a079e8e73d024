package sidecar

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/relay"
)

const (
	metricPrefix = "outbox_relay_"
	outboxLabel  = "outbox"
)

// A figure is one metric of each outbox, with its text in docs/relay-reference.md.
type figure struct {
	name string // without the prefix
	kind prometheus.ValueType
	unit string
	help string
	bad  string // what a bad value means, and the remedy; empty: there is no bad value
	// value returns the metric's value, or false if it is not known.
	value func(scrape) (float64, bool)
}

// A scrape is the state of one outbox at one scrape.
type scrape struct {
	status relay.Status
	ready  bool
	rows   *rowStats // nil while the database does not answer
	outlet *outlet
}

func counts(of func(relay.Status) int64) func(scrape) (float64, bool) {
	return func(s scrape) (float64, bool) { return float64(of(s.status)), true }
}

func tells(of func(scrape) bool) func(scrape) (float64, bool) {
	return func(s scrape) (float64, bool) {
		if of(s) {
			return 1, true
		}
		return 0, true
	}
}

func failedRows(of func(*rowStats) float64) func(scrape) (float64, bool) {
	return func(s scrape) (float64, bool) {
		if s.rows == nil {
			return 0, false
		}
		return of(s.rows), true
	}
}

// inTable returns no value for a table with a mapping: none of its columns shows which rows are published.
func inTable(of func(*rowStats) float64) func(scrape) (float64, bool) {
	return func(s scrape) (float64, bool) {
		if s.rows == nil || s.rows.mapped {
			return 0, false
		}
		return of(s.rows), true
	}
}

// ofRecords returns no value if the role may not read the counts.
func ofRecords(of func(*retention.RecordStats) (float64, bool)) func(scrape) (float64, bool) {
	return func(s scrape) (float64, bool) {
		if s.rows == nil || s.rows.records == nil {
			return 0, false
		}
		return of(s.rows.records)
	}
}

// ofSlot returns no value if there is no slot, or another relay streams it.
func ofSlot(of func(*relay.SlotStatus) (float64, bool)) func(scrape) (float64, bool) {
	return func(s scrape) (float64, bool) {
		if s.status.Slot == nil {
			return 0, false
		}
		return of(s.status.Slot)
	}
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// figures contains all metrics except the histogram. Registration and reference are made from it.
var figures = []figure{
	{"rows_captured_total", counter, "rows", "Rows read from the outbox; each try counts.",
		"grows much faster than rows_published_total: rows are refused and read again; see rows_retried_total",
		counts(func(s relay.Status) int64 { return s.Claimed })},
	{"rows_published_total", counter, "rows", "Rows that the brokers acknowledged.",
		"does not grow while lag_rows is not 0: nothing is published; /readyz has the reason",
		counts(func(s relay.Status) int64 { return s.Published })},
	{"rows_deleted_total", counter, "rows", "Rows that were acknowledged and removed.",
		"stays behind rows_published_total for minutes: the database refuses the delete, and a restart will repeat those rows",
		counts(func(s relay.Status) int64 { return s.Deleted })},
	{"rows_retried_total", counter, "rows", "Times that a row was put off to a next try.",
		"grows: a topic does not exist or refuses us; the log names it",
		counts(func(s relay.Status) int64 { return s.Retried })},
	{"rows_parked_total", counter, "rows", "Rows that this process put before a person.",
		"grows: look at outbox-relay parked list",
		counts(func(s relay.Status) int64 { return s.Parked })},
	{"rows_in_flight", gauge, "rows", "Rows sent and not yet acknowledged.",
		"stays above 0 while rows_published_total does not grow: the brokers do not answer",
		counts(func(s relay.Status) int64 { return s.InFlight })},
	{"active", gauge, "1 or 0", "1 while this relay holds the lease, else 0.",
		"the sum over all relays of one database is 0 for longer than lease: no relay publishes",
		tells(func(s scrape) bool { return s.status.Role == relay.Active })},
	{"lease_term", gauge, "terms", "Term of the lease, the own one or the last one seen.",
		"grows every few minutes: relays lose the lease; the database is slow or machines freeze",
		counts(func(s relay.Status) int64 { return s.Term })},
	{"last_progress_timestamp_seconds", gauge, "s since 1970", "When the relay last made progress: rows acknowledged, or an outbox found empty.",
		"older than a minute: the relay makes no progress; /readyz has the reason",
		func(s scrape) (float64, bool) {
			return float64(s.status.Progress.UnixMilli()) / 1000, !s.status.Progress.IsZero()
		}},
	{"ready", gauge, "1 or 0", "1 when /readyz finds nothing wrong with this outbox, else 0.",
		"0 for a minute: nothing gets out; /readyz says why",
		tells(func(s scrape) bool { return s.ready })},
	{"paused", gauge, "1 or 0", "1 while this relay is paused.",
		"1 for longer than the work that it was for: POST /resume was forgotten",
		tells(func(s scrape) bool { return !s.status.PausedSince.IsZero() || s.status.StoredPause != nil })},
	{"slot_retained_bytes", gauge, "bytes", "Log that the server keeps for the slot.",
		"grows for minutes: rows do not get out, or some transaction is open; the server's disk fills with it",
		ofSlot(func(s *relay.SlotStatus) (float64, bool) { return float64(s.RetainedBytes), true })},
	{"slot_unconfirmed_bytes", gauge, "bytes", "Log behind the last LSN that the relay confirmed.",
		"grows for minutes while lag_rows is 0: the relay does not confirm; its log says why",
		ofSlot(func(s *relay.SlotStatus) (float64, bool) { return float64(s.UnconfirmedBytes), true })},
	{"slot_safe_bytes", gauge, "bytes", "What may still be written before the slot may be lost; absent without max_slot_wal_keep_size.",
		"near 0: the server is about to give the slot up; the relay would heal it from the table",
		ofSlot(func(s *relay.SlotStatus) (float64, bool) {
			if s.SafeBytes == nil {
				return 0, false
			}
			return float64(*s.SafeBytes), true
		})},
	{"lag_seconds", gauge, "s", "Age of the oldest row in the outbox.",
		"above what you promised: see ready, rows_in_flight and publish_seconds; a parked row counts too",
		inTable(func(r *rowStats) float64 { return r.Oldest.Seconds() })},
	{"lag_rows", gauge, "rows", "Rows in the outbox, counted up to 100000.",
		"grows for minutes: more is written than gets out",
		inTable(func(r *rowStats) float64 { return float64(r.Pending) })},
	{"lag_bytes", gauge, "bytes", "Payloads of the rows that lag_rows counts.",
		"much more than lag_rows times your usual message: large rows are written, which brokers may refuse",
		inTable(func(r *rowStats) float64 { return float64(r.Bytes) })},
	{"retrying_rows", gauge, "rows", "Rows that wait for their next try.",
		"above 0 for minutes: a topic does not exist or refuses us; soon they are parked",
		failedRows(func(r *rowStats) float64 { return float64(r.Retrying) })},
	{"parked_rows", gauge, "rows", "Rows that a person must look at.",
		"above 0: their keys wait behind them; outbox-relay parked list",
		failedRows(func(r *rowStats) float64 { return float64(r.Parked) })},
	{"headroom_positions", gauge, "positions", "Positions left in the partitions there are.",
		"falls below a day's rows: partitions are not made ahead; at 0 every insert fails; see outbox-relay check",
		inTable(func(r *rowStats) float64 { return float64(r.Headroom) })},
	{"removed_sagas_total", counter, "sagas", "Ended sagas that retention removed from the database, with their logs.",
		"does not grow although sagas ended longer ago than troupe.retention keeps them: see retention_timestamp_seconds",
		ofRecords(func(r *retention.RecordStats) (float64, bool) { return float64(r.Sagas), true })},
	{"removed_dead_letters_total", counter, "dead letters", "Closed dead letters that retention removed from the database.",
		"does not grow although older ones are closed: see retention_timestamp_seconds",
		ofRecords(func(r *retention.RecordStats) (float64, bool) { return float64(r.DeadLetters), true })},
	{"removed_repairs_total", counter, "repairs", "Operators' actions that retention removed from the database.",
		"does not grow although there are older ones: see retention_timestamp_seconds",
		ofRecords(func(r *retention.RecordStats) (float64, bool) { return float64(r.Repairs), true })},
	{"retention_timestamp_seconds", gauge, "s since 1970", "End of the last complete pass of retention over all closed records; absent before the first.",
		"older than a day: no program removes closed records, and the tables grow; the log says why",
		ofRecords(func(r *retention.RecordStats) (float64, bool) {
			if r.PassedAt == nil {
				return 0, false
			}
			return float64(r.PassedAt.UnixMilli()) / 1000, true
		})},
	{"alerts_total", counter, "alerts", "Alerts that the webhook took.", "",
		func(s scrape) (float64, bool) {
			if s.outlet.alerts == nil {
				return 0, false
			}
			return float64(s.outlet.alerts.Stats().Alerts), true
		}},
	{"alert_incidents_lost_total", counter, "rows", "Parked rows that were not reported to the webhook: it refused, or there were too many causes.",
		"grows: alerts are lost; look at the log and at alert-url",
		func(s scrape) (float64, bool) {
			if s.outlet.alerts == nil {
				return 0, false
			}
			a := s.outlet.alerts.Stats()
			return float64(a.Lost + a.Dropped), true
		}},
}

// The histogram's text is not in figures, since the histogram is not read from a scrape.
const (
	latencyName = "publish_seconds"
	latencyHelp = "Time from sending a row until the brokers acknowledged it."
	latencyBad  = "the 99th percentile is above a second: the brokers are slow, or their replicas are behind"
)

// publishLatency makes the histogram of the time until acknowledgement. It counts each row once.
func publishLatency() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    metricPrefix + latencyName,
		Help:    latencyHelp,
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{outboxLabel})
}

// relayMetrics reads the relays' status and, from the databases, the figures of the outboxes at each scrape. The latter are
// absent while a database does not answer.
type relayMetrics struct{ fleet *fleet }

var descriptions = func() []*prometheus.Desc {
	all := make([]*prometheus.Desc, len(figures))
	for n, f := range figures {
		all[n] = prometheus.NewDesc(metricPrefix+f.name, f.help, []string{outboxLabel}, nil)
	}
	return all
}()

// Describe implements prometheus.Collector.
func (m *relayMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		to <- d
	}
}

// Collect implements prometheus.Collector. It reads all databases concurrently: any number of databases that do not answer delay
// a scrape by statsLimit.
func (m *relayMetrics) Collect(to chan<- prometheus.Metric) {
	all := m.fleet.list()
	scrapes := make(chan scrape, len(all))
	for _, o := range all {
		go func() {
			s := scrape{status: o.status(), ready: o.ready() == nil, outlet: o}
			if rows, err := o.statistics().read(context.Background()); err == nil {
				s.rows = &rows
			}
			scrapes <- s
		}()
	}
	for range all {
		s := <-scrapes
		for n, f := range figures {
			if value, known := f.value(s); known {
				to <- prometheus.MustNewConstMetric(descriptions[n], f.kind, value, s.outlet.plan.name)
			}
		}
	}
}
