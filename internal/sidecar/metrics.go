package sidecar

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/troupe-go/troupe/alert"
	"github.com/troupe-go/troupe/relay"
)

// publishLatency is from the hand-over of rows to the client until the brokers' acknowledgement, counted once per row.
func publishLatency() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "outbox_relay_publish_seconds",
		Help:    "Time from sending a row until the brokers acknowledged it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	})
}

// relayMetrics reads the relay's own numbers, and the outbox's from the database, when it is scraped. The latter are
// left out while the database does not answer.
type relayMetrics struct {
	relay  *relay.Relay
	stats  *statistics
	alerts *alert.Notifier // nil without a webhook
}

type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string) metric {
	return metric{prometheus.NewDesc("outbox_relay_"+name, help, nil, nil), prometheus.CounterValue}
}

func gauge(name, help string) metric {
	return metric{prometheus.NewDesc("outbox_relay_"+name, help, nil, nil), prometheus.GaugeValue}
}

func (m metric) send(to chan<- prometheus.Metric, value float64) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, value)
}

var (
	claimed    = counter("rows_claimed_total", "Rows read from the outbox, with each try anew.")
	published  = counter("rows_published_total", "Rows that the brokers acknowledged.")
	deleted    = counter("rows_deleted_total", "Rows that were acknowledged and removed.")
	retried    = counter("rows_retried_total", "Times that a row was put off to a next try.")
	parked     = counter("rows_parked_total", "Rows that this process put before a person.")
	inFlight   = gauge("rows_in_flight", "Rows sent and not yet acknowledged.")
	active     = gauge("active", "1 while this relay holds the lease, else 0.")
	term       = gauge("lease_term", "Term of the lease, the own one or the last one seen.")
	progress   = gauge("last_progress_timestamp_seconds", "When the relay last got somewhere.")
	ready      = gauge("ready", "1 when /readyz answers 200, else 0.")
	lagSeconds = gauge("lag_seconds", "Age of the oldest row in the outbox.")
	lagRows    = gauge("lag_rows", "Rows in the outbox, counted up to 100000.")
	retrying   = gauge("retrying_rows", "Rows that wait for their next try.")
	parkedRows = gauge("parked_rows", "Rows that a person must look at.")
	headroom   = gauge("headroom_positions", "Positions left in the partitions there are; inserts fail at 0.")
	alerted    = counter("alerts_total", "Alerts that the webhook took.")
	alertsLost = counter("alert_incidents_lost_total", "Parked rows that the webhook was not told of: it refused, or there were too many causes.")

	allMetrics = []metric{
		claimed, published, deleted, retried, parked, inFlight, active, term, progress, ready,
		lagSeconds, lagRows, retrying, parkedRows, headroom, alerted, alertsLost,
	}
)

func (m *relayMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range allMetrics {
		to <- one.desc
	}
}

func (m *relayMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.relay.Status()
	claimed.send(to, float64(s.Claimed))
	published.send(to, float64(s.Published))
	deleted.send(to, float64(s.Deleted))
	retried.send(to, float64(s.Retried))
	parked.send(to, float64(s.Parked))
	inFlight.send(to, float64(s.InFlight))
	active.send(to, oneIf(s.Role == relay.Active))
	term.send(to, float64(s.Term))
	if !s.Progress.IsZero() {
		progress.send(to, float64(s.Progress.UnixMilli())/1000)
	}
	ready.send(to, oneIf(m.relay.Ready() == nil))
	if m.alerts != nil {
		a := m.alerts.Stats()
		alerted.send(to, float64(a.Alerts))
		alertsLost.send(to, float64(a.Lost+a.Dropped))
	}

	rows, err := m.stats.read(context.Background())
	if err != nil {
		return
	}
	lagSeconds.send(to, rows.Oldest.Seconds())
	lagRows.send(to, float64(rows.Pending))
	retrying.send(to, float64(rows.Retrying))
	parkedRows.send(to, float64(rows.Parked))
	headroom.send(to, float64(rows.Headroom))
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
