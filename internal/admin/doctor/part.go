package doctor

import "github.com/troupe-go/troupe/internal/grants"

// A Part is a program, or a part of one, that works with a role's rights. docs/security.md lists the rights of each.
type Part = grants.Part

// These are the parts. Sagas, Flow and Ambassador include Participant, and the operators include Viewer.
const (
	Writer        = grants.Writer        // a service that only writes to the outbox
	Relay         = grants.Relay         // outbox-relay
	MappedRelay   = grants.MappedRelay   // outbox-relay, for a table of another shape
	Participant   = grants.Participant   // package participant, with Kafka
	LocalWork     = grants.LocalWork     // package participant, with Config.Local
	Sagas         = grants.Sagas         // package saga/coordinator
	Flow          = grants.Flow          // package flow
	Ambassador    = grants.Ambassador    // troupe ambassador
	Watch         = grants.Watch         // troupe watch
	Viewer        = grants.Viewer        // every page of the console, and every command that only reads
	Operator      = grants.Operator      // troupe dlq, held and inbox, and the console's pages of these
	SagaOperator  = grants.SagaOperator  // troupe saga, and the console's pages of sagas
	RelayOperator = grants.RelayOperator // outbox-relay pause, resume and parked, and the console's page of the relay
)

// Parts returns all parts.
func Parts() []Part { return grants.Parts() }
