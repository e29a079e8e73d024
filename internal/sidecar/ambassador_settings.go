package sidecar

import "slices"

const ambassadorProgram = "troupe-ambassador"

var (
	registry = setting{name: "registry", secret: true, env: "SCHEMA_REGISTRY_URL",
		usage: "`http://host:port` of the schema registry, where commands are Avro: the service gets and gives JSON"}

	hop        = setting{name: "hop", usage: "`flow.hop` whose commands are consumed, such as order.shipping"}
	group      = setting{name: "group", usage: "`name` of the consumer group; default: the hop. Another one has seen nothing"}
	named      = setting{name: "service", usage: "`name` for ce_source of the emitted messages; default: the hop's"}
	partitions = setting{name: "partitions", value: "0", kind: number, most: 10_000,
		usage: "`number` of the hop's topics' partitions, where they are missing and made; 0: the broker's own"}

	serviceURL   = setting{name: "service-url", usage: "`http://host:port` of the service, with a path where all of its paths begin with one"}
	serviceToken = setting{name: "service-token", secret: true, hidden: true,
		usage: "`token` that each request brings as Authorization: Bearer"}
	serviceCA = setting{name: "service-tls-ca", kind: path,
		usage: "`file.pem` with the authorities that may have signed the service's certificate; read for each connection; default: the system's"}
	serviceCert = setting{name: "service-tls-cert", kind: path, usage: "`file.pem` with our certificate; read again for each connection"}
	serviceKey  = setting{name: "service-tls-key", kind: path, usage: "`file.pem` with its key; read again for each connection"}
	serviceName = setting{name: "service-tls-server-name", usage: "`name` that the service's certificate must contain; default: its host"}
	mode        = setting{name: "mode", value: "cloudevents", kind: choice, choices: []string{"cloudevents", "plain"},
		usage: "`cloudevents|plain`: the attributes are ce-… headers (HTTP binding, binary mode), or there are none"}
	retry400 = setting{name: "retry-400", value: "false", kind: choice, choices: []string{"true", "false"},
		usage: "`true|false`: 400 means not now, instead of no"}
	signature = setting{name: "signature", value: "none", kind: choice, choices: []string{"none", "standard-webhooks", "github"},
		usage: "`none|standard-webhooks|github`: how requests are signed, with signing-secret"}
	signingSecret = setting{name: "signing-secret", secret: true, hidden: true,
		usage: "`secret` of the signature: of standard-webhooks in base64, 24 to 64 bytes; of github text of 24 bytes or more"}
	timeout = setting{name: "timeout", value: "30s", kind: duration, usage: "longest `time` until the service has answered"}
	atOnce  = setting{name: "concurrency", value: "64", kind: number, least: 1, most: 1000,
		usage: "`requests` at the same time; requests of one key are sent one after the other"}
	maxAnswer = setting{name: "max-answer-kb", value: "256", kind: number, least: 1, most: 878,
		usage: "`kilobytes` of the longest answer; concurrency times as much may be in memory"}
	tries = setting{name: "retry-attempts", value: "8", kind: number, least: 1, most: 1000,
		usage: "`tries` of a command, the first included, until it is a dead letter"}
	firstRetry = setting{name: "retry-initial", value: "500ms", kind: duration,
		usage: "longest `time` to wait after the first try; doubles with each further try; each wait is a random time up to it"}
	longestRetry = setting{name: "retry-cap", value: "1m", kind: duration, usage: "longest `time` between two tries"}
	ending       = setting{name: "drain", value: "10s", kind: duration, usage: "longest `time` for requests in flight when stopped"}
	tellURL      = setting{name: "alert-url", env: "ALERT_URL", secret: true,
		usage: "`URL` of a chat's webhook, to which dead letters are reported; a secret: better in the environment"}
	migrate = setting{name: "migrate", value: "false", kind: choice, choices: []string{"true", "false"},
		usage: "`true|false`: bring the database to the latest version at the start; its role must own Troupe's tables"}

	posts      = setting{name: "outbox", usage: "`host:port` of POST /outbox; without it there is none; other than loopback only with outbox-token"}
	postsToken = setting{name: "outbox-token", secret: true, hidden: true,
		usage: "`token` that POST /outbox wants as Authorization: Bearer; at least 16 characters"}
	postsTopics = setting{name: "outbox-topics", kind: list, usage: "`topic,...` that POST /outbox may write to; default: any"}
	postsKept   = setting{name: "outbox-ids", value: "168h", kind: duration,
		usage: "`time` for which a posted id is remembered: a repeat after that is written again"}

	sagaFiles = setting{name: "sagas", kind: list,
		usage: "`file,...` with the definitions of the sagas that the hop coordinates: the ambassador runs them, and serves /sagas where it serves POST /outbox"}

	beside = setting{name: "admin", value: "127.0.0.1:8088",
		usage: "`host:port` of /livez, /readyz and /metrics; other than loopback only with admin-token"}
	besideToken = setting{name: "admin-token", secret: true, hidden: true,
		usage: "`token` that /metrics wants as Authorization: Bearer; at least 16 characters"}
)

var toService = identity{serviceCA, serviceCert, serviceKey, serviceName}

// ambassadorSections contains the settings of troupe ambassador. The settings of the database and of Kafka are the relay's.
var ambassadorSections = []section{
	{"Database", databaseSettings},
	{"Kafka", append(slices.Clone(kafkaSettings), registry, hop, group, named, partitions)},
	{"The service", []setting{
		serviceURL, serviceToken, serviceCA, serviceCert, serviceKey, serviceName, mode, retry400, signature, signingSecret, timeout,
		atOnce, maxAnswer, tries, firstRetry, longestRetry,
	}},
	{"POST /outbox", []setting{posts, postsToken, postsTopics, postsKept}},
	{"Sagas", []setting{sagaFiles}},
	{"The process", []setting{migrate, ending, tellURL, beside, besideToken, logLevel}},
}

var ambassadorSettings = func() (all []setting) {
	for _, s := range ambassadorSections {
		all = append(all, settingsOfProgram(ambassadorProgram, s.settings...)...)
	}
	return all
}()

// The commands are in the file only: they have no flags.
const (
	commandsKey  = "commands"
	mostCommands = 1000
)
