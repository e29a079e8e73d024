package sidecar

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/schemas"
)

// A setting has one name as flag, in the file and, in capitals, in the environment. This table is the only place that defines
// settings: flags, file, JSON Schema and docs/relay-reference.md are made from it.
type setting struct {
	name  string
	value string // the default
	usage string // with the value's kind in back-quotes
	env   string // the variable, if it is not OUTBOX_RELAY_…

	kind        kind
	choices     []string // of a choice
	least, most int      // of a number

	// secret: the value may also be read from a file, by NAME-file and VARIABLE_FILE. It is never printed.
	secret bool
	// hidden: the secret has no flag of its own, since other users can see a command line.
	hidden bool
	// printed reports that the secret may also be the output of a command, set by NAME-command or VARIABLE_COMMAND.
	printed bool
	each    bool // may differ between outboxes; a reload restarts the relay of that outbox

	program string // the program in the variable's name; empty: outbox-relay
	live    bool   // a reload applies it at once
}

type kind int

const (
	text kind = iota
	list
	number
	duration
	choice
	path
)

func (s setting) variable() string {
	if s.env != "" {
		return s.env
	}
	return capitals(cmp.Or(s.program, relayProgram)) + "_" + capitals(s.name)
}

// variableOf returns the variable that sets it for one outbox alone.
func (s setting) variableOf(outbox string) string {
	return "OUTBOX_RELAY_" + capitals(outbox) + "__" + capitals(s.name)
}

func capitals(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// fileName returns the setting that names the file of a secret.
func (s setting) fileName() string { return s.name + "-file" }

// commandName returns the name of the setting with the command that prints a secret.
func (s setting) commandName() string { return s.name + "-command" }

var (
	databaseURL = setting{name: "database-url", env: "DATABASE_URL", secret: true, each: true,
		usage: "the service's database, `postgres://...`; better in the environment, since others can see a command line; if it is in a file, user and password are read from the file for each connection"}
	databasePassword = setting{name: "database-password", secret: true, hidden: true, printed: true, each: true,
		usage: "`password`, if database-url does not contain it; its file is read, or its command run, for each connection"}
	databaseCA = setting{name: "database-tls-ca", kind: path, each: true,
		usage: "`file.pem` with the authorities that may have signed the server's certificate; read for each connection; default: the system's"}
	databaseCert = setting{name: "database-tls-cert", kind: path, each: true,
		usage: "`file.pem` with our certificate; read again for each connection"}
	databaseKey = setting{name: "database-tls-key", kind: path, each: true,
		usage: "`file.pem` with its key; read again for each connection"}
	databaseName = setting{name: "database-tls-server-name", each: true,
		usage: "`name` that the server's certificate must contain; default: the host"}

	brokers  = setting{name: "brokers", env: "KAFKA_BROKERS", kind: list, each: true, usage: "`host:port,...` of Kafka"}
	kafkaTLS = setting{name: "kafka-tls", value: "false", kind: choice, choices: []string{"true", "false"}, each: true,
		usage: "`true|false`: encrypt and verify with the system's authorities; any other kafka-tls-… also turns it on"}
	kafkaCA = setting{name: "kafka-tls-ca", kind: path, each: true,
		usage: "`file.pem` with the authorities that may have signed the brokers' certificates; read for each connection"}
	kafkaCert = setting{name: "kafka-tls-cert", kind: path, each: true,
		usage: "`file.pem` with our certificate; read again for each connection"}
	kafkaKey = setting{name: "kafka-tls-key", kind: path, each: true,
		usage: "`file.pem` with its key; read again for each connection"}
	kafkaName = setting{name: "kafka-tls-server-name", each: true,
		usage: "`name` that each broker's certificate must contain; default: its host"}
	kafkaSASL = setting{name: "kafka-sasl", value: "none", kind: choice, choices: mechanisms, each: true,
		usage: "`none|plain|scram-sha-256|scram-sha-512|oauthbearer|aws-msk-iam`: how the program authenticates; use plain only with TLS"}
	kafkaUser     = setting{name: "kafka-user", each: true, usage: "`name` for plain and scram"}
	kafkaPassword = setting{name: "kafka-password", secret: true, hidden: true, printed: true, each: true,
		usage: "`password` for plain and scram; its file is read, or its command run, for each connection"}
	kafkaToken = setting{name: "kafka-token", secret: true, hidden: true, printed: true, each: true,
		usage: "`token` for oauthbearer; its file is read, or its command run, for each connection"}
	kafkaTokenURL = setting{name: "kafka-token-url", each: true,
		usage: "`https://...` of the token endpoint of an identity provider, for oauthbearer by client credentials (OIDC)"}
	kafkaTokenCA = setting{name: "kafka-token-tls-ca", kind: path, each: true,
		usage: "`file.pem` with the authorities that may have signed the endpoint's certificate; read for each request; default: the system's"}
	kafkaClientID     = setting{name: "kafka-client-id", each: true, usage: "`id` of this client at the token endpoint"}
	kafkaClientSecret = setting{name: "kafka-client-secret", secret: true, hidden: true, each: true,
		usage: "`secret` of this client; its file is read for each request"}
	kafkaScope      = setting{name: "kafka-scope", kind: list, each: true, usage: "`scope,...` to request from the token endpoint"}
	kafkaAudience   = setting{name: "kafka-audience", each: true, usage: "`audience` to request from the token endpoint"}
	kafkaExtensions = setting{name: "kafka-sasl-extensions", kind: list, each: true,
		usage: "`name=value,...` that oauthbearer sends with the token, such as logicalCluster and identityPoolId of Confluent Cloud"}
	kafkaAWS = setting{name: "kafka-aws-credentials", secret: true, hidden: true, printed: true, each: true,
		usage: "`credentials` for aws-msk-iam, as the JSON of AWS's credential_process, or the text of a credentials file (AWS_PROFILE names the section); default: the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"}

	service = setting{name: "service", each: true,
		usage: "`name` for ce_source of rows that name none; default: the database's name. \"/\" and the table follow for mapped rows whose id is no UUID"}
	source = setting{name: "source", value: "auto", kind: choice, choices: []string{"auto", "wal", "poll"}, each: true,
		usage: "`auto|wal|poll`: where rows are read; auto is wal where the server and the role allow it, and the log says why not"}
	slot = setting{name: "slot", each: true,
		usage: "`name` of the replication slot, of the whole cluster; default: troupe_ and the name of the database (of the user, if the address has no database)"}
	publicationSetting = setting{name: "publication", each: true,
		usage: "`name` of the publication that is streamed; default: troupe_outbox, and of a table with a mapping one that the relay makes"}
	failover = setting{name: "failover", value: "auto", kind: choice, choices: []string{"auto", "on", "off"}, each: true,
		usage: "`auto|on|off`: whether standbys copy the slot, if their sync_replication_slots is on; auto is on from Postgres 17"}
	slotWarn = setting{name: "slot-warn-mb", value: "1024", kind: number, least: 1, most: 1 << 30, each: true,
		usage: "`megabytes` of its log that the server keeps for the slot before the relay warns"}
	slotUnready = setting{name: "slot-unready-mb", value: "8192", kind: number, least: 1, most: 1 << 30, each: true,
		usage: "`megabytes` before /readyz says so; no less than slot-warn-mb"}
	slotLimit = setting{name: "slot-limit-mb", value: "0", kind: number, most: 1 << 30, each: true,
		usage: "`megabytes` at which the slot is dropped, rather than fill the server's disk, and the table polled; 0: never"}
	retentionSetting = setting{name: "retention", value: "1h", kind: duration, each: true,
		usage: "`time` that rows which wal has published stay at least, to be replayed"}
	delivery = setting{name: "delivery", value: "at-least-once", kind: choice, choices: []string{"at-least-once", "exactly-once"}, each: true,
		usage: "`at-least-once|exactly-once`: repeats carry the same ce_id; exactly-once publishes in Kafka transactions, and needs the wal source"}
	transactions = setting{name: "transactions", value: "100ms", kind: duration, each: true,
		usage: "`time` from the end of one Kafka transaction to the end of the next, under exactly-once"}
	transactionTimeout = setting{name: "transaction-timeout", value: "1m", kind: duration, each: true,
		usage: "`time` after which the broker gives up a Kafka transaction; up to its transaction.max.timeout.ms"}
	compression = setting{name: "compression", value: "snappy", kind: choice, choices: []string{"none", "gzip", "snappy", "lz4", "zstd"}, each: true,
		usage: "`none|gzip|snappy|lz4|zstd`: how record batches are compressed, where that makes them smaller"}
	shards = setting{name: "shards", value: "1", kind: number, least: 1, most: 64, each: true,
		usage: "`parts` into which poll divides the outbox by key, each published on its own, by one relay or several"}
	batch = setting{name: "batch", value: "2000", kind: number, least: 1, most: 10_000, each: true,
		usage: "`rows` claimed at once, up to 10000"}
	interval = setting{name: "interval", value: "1s", kind: duration, each: true,
		usage: "longest `time` between two looks at an idle outbox"}
	lease = setting{name: "lease", value: "5s", kind: duration, each: true,
		usage: "`time` after which a standby replaces a relay that died"}
	drain = setting{name: "drain", value: "10s", kind: duration, each: true,
		usage: "longest `time` to wait for acknowledgements when stopped"}
	retryInitial = setting{name: "retry-initial", value: "500ms", kind: duration, each: true,
		usage: "`time` to wait after a topic refused a row for the first time; doubles with each further refusal"}
	retryCap = setting{name: "retry-cap", value: "1m", kind: duration, each: true,
		usage: "longest `time` between two tries of a row"}
	retryAttempts = setting{name: "retry-attempts", value: "8", kind: number, least: 1, most: 1000, each: true,
		usage: "`tries` of a row, the first included, until it is parked"}
	unknownTopic = setting{name: "unknown-topic", value: "1m", kind: duration, each: true,
		usage: "`time` for which a row is tried whose topic does not exist, until it is parked"}
	payloadRegistry = setting{name: "registry", secret: true, each: true,
		usage: "`URL` of the schema registry by which payloads that are JSON become Avro, with user and password if it wants them; default: they stay JSON"}
	subjectStrategy = setting{name: "subject-strategy", value: string(schemas.TopicName), kind: choice, each: true,
		choices: []string{string(schemas.TopicName), string(schemas.RecordName), string(schemas.TopicRecordName)},
		usage:   "`TopicNameStrategy|RecordNameStrategy|TopicRecordNameStrategy`: the registry's subject of a message, by its topic, its type or both"}
	avroTopics = setting{name: "avro-topics", kind: list, each: true,
		usage: "`topic,...` whose payloads become Avro, where there is a registry; * matches any text; default: all"}
	alertURL = setting{name: "alert-url", env: "ALERT_URL", secret: true, each: true,
		usage: "`URL` of a chat's webhook, to which parked rows are reported; a secret: better in the environment"}

	adminAddress = setting{name: "admin", value: "127.0.0.1:8089",
		usage: "`host:port` of /livez, /readyz, /metrics and /status; other than loopback only with admin-token"}
	adminToken = setting{name: "admin-token", secret: true, hidden: true, live: true,
		usage: "`token` that actions and, then, everything but /livez and /readyz want as Authorization: Bearer; " +
			"at least 16 characters; without it there are no actions"}
	logLevel = setting{name: "log-level", value: "info", kind: choice, choices: []string{"debug", "info", "warn", "error"}, live: true,
		usage: "`debug|info|warn|error`"}
	otlpEndpoint = setting{name: "otlp-endpoint", env: "OTEL_EXPORTER_OTLP_ENDPOINT",
		usage: "`http://host:4318` of an OpenTelemetry collector, which gets spans of rows whose writer has a sampled trace; default: no spans"}
	output = setting{name: "output", value: "text", kind: choice, choices: []string{"text", "json"},
		usage: "`text|json`"}
)

// A section is a section of the reference.
type section struct {
	title    string
	settings []setting
}

var sections = []section{
	{"Database", []setting{databaseURL, databasePassword, databaseCA, databaseCert, databaseKey, databaseName}},
	{"Kafka", []setting{
		brokers, kafkaTLS, kafkaCA, kafkaCert, kafkaKey, kafkaName, kafkaSASL, kafkaUser, kafkaPassword, kafkaToken,
		kafkaTokenURL, kafkaTokenCA, kafkaClientID, kafkaClientSecret, kafkaScope, kafkaAudience, kafkaExtensions, kafkaAWS,
	}},
	{"Publishing", []setting{
		service, source, slot, publicationSetting, failover, slotWarn, slotUnready, slotLimit, retentionSetting, delivery, transactions, transactionTimeout,
		compression, shards, batch, interval, lease, drain, retryInitial, retryCap, retryAttempts, unknownTopic,
		payloadRegistry, subjectStrategy, avroTopics, alertURL,
	}},
	{"The process", []setting{adminAddress, adminToken, logLevel, otlpEndpoint, output}},
}

// everything contains all settings that the file may hold, for any command.
var everything = slices.Concat(sections[0].settings, sections[1].settings, sections[2].settings, sections[3].settings)

var (
	databaseSettings = sections[0].settings
	kafkaSettings    = sections[1].settings
	eachSettings     = slices.Concat(databaseSettings, kafkaSettings, sections[2].settings)
)

const (
	relayProgram = "outbox-relay"
	configFlag   = "config"
	outboxFlag   = "outbox"
)

// configVar returns the variable with the path of a program's file.
func configVar(program string) string { return capitals(program) + "_CONFIG" }

// settingsOfProgram returns the settings with the variables of a program.
func settingsOfProgram(program string, settings ...setting) []setting {
	settings = slices.Clone(settings)
	for n := range settings {
		settings[n].program = program
	}
	return settings
}

// declare gives a command the flags of its settings.
func declare(cmd *cobra.Command, settings ...setting) {
	flags := cmd.Flags()
	flags.SortFlags = false
	for _, s := range settings {
		if !s.hidden {
			flags.String(s.name, s.value, s.usage+" ["+s.variable()+"]")
		}
		if s.secret {
			flags.String(s.fileName(), "", "`file` with "+s.name+" ["+s.variable()+"_FILE]")
		}
		if s.printed {
			flags.String(s.commandName(), "", "`command` that prints "+s.name+", run without a shell ["+s.variable()+"_COMMAND]")
		}
	}
	flags.String(configFlag, "", "`file.yaml` with any of these settings ["+configVar(cmp.Or(settings[0].program, relayProgram))+"]")
}

// declareOne adds the flag that selects one outbox, for commands that work on one.
func declareOne(cmd *cobra.Command, settings ...setting) {
	declare(cmd, settings...)
	cmd.Flags().String(outboxFlag, "", "`name` of one of the file's outboxes; needed where there are several")
}

// plainUsage returns the usage without the quotes around the value's kind.
func plainUsage(s setting) string { return strings.ReplaceAll(s.usage, "`", "") }

// defaultValue returns the default in the type that it has in the file.
func (s setting) defaultValue() any {
	if s.kind == number {
		n, _ := strconv.Atoi(s.value) // a test reads each default
		return n
	}
	if s.value == "true" || s.value == "false" {
		return s.value == "true"
	}
	return s.value
}
