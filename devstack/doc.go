// Package devstack starts a Postgres, a Kafka broker and a schema registry on this machine, for `troupe demo` and for tests.
//
// Start… always starts one here; Open… uses the server that an environment variable names, when it is set:
//
//	TROUPE_POSTGRES   URL of a Postgres where databases may be created and dropped
//	TROUPE_KAFKA      comma separated host:port list
//	TROUPE_REGISTRY   URL of a registry that speaks Confluent's REST API
//
// DATABASE_URL is never read: it may be somebody's production.
//
// What is started here listens on loopback only, and ends with this process, however this process ends. Files without a folder given by
// the caller go to the temporary directory; they are removed at Close, and what a killed process left there is removed by the next start.
//
// Postgres is a real server, from binaries that are installed or else fetched once. Broker and registry are franz-go's kfake and srfake,
// in this process: they speak the protocols, but nothing counts as working on Kafka until it ran on Apache Kafka (devstack/apachekafka).
// srfake answers every compatibility question with yes. An embedded Postgres needs Linux or macOS.
package devstack
