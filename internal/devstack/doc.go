// Package devstack starts a Postgres, a Kafka broker and a schema registry on this machine, for `troupe demo` and for tests.
//
// Start… always starts a server here; Open… uses the server that an environment variable names, if it is set:
//
//	TROUPE_POSTGRES   URL of a Postgres where databases may be created and dropped
//	TROUPE_KAFKA      comma separated host:port list
//	TROUPE_REGISTRY   URL of a registry that speaks Confluent's REST API
//
// DATABASE_URL is never read: it may be a production database.
//
// A server that is started here listens on loopback only, and ends with this process, however this process ends. Files without a
// folder given by the caller are in the temporary directory; Close removes them, and the next start removes the files of a killed
// process.
//
// Postgres is a real server, from binaries that are installed or else fetched once. Broker and registry are franz-go's kfake and
// srfake, in this process: they implement the protocols, but nothing counts as working on Kafka until it ran on Apache Kafka
// (internal/devstack/apachekafka). StartRegistry adds the check of compatibility, which srfake does not have. An embedded Postgres needs
// Linux or macOS.
package devstack
