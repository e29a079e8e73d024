// Package ce names the headers of messages in Kafka: CloudEvents headers, with Troupe's attributes.
package ce

// Names of headers.
const (
	HeaderSpecVersion    = "ce_specversion"
	HeaderID             = "ce_id"
	HeaderSource         = "ce_source"
	HeaderType           = "ce_type"
	HeaderSubject        = "ce_subject"
	HeaderTime           = "ce_time"
	HeaderContentType    = "content-type"
	HeaderCorrelationID  = "ce_correlationid"
	HeaderCausationID    = "ce_causationid"
	HeaderOutcome        = "ce_outcome"
	HeaderIdempotencyKey = "ce_idempotencykey"
	HeaderSagaID         = "ce_sagaid"
	HeaderSagaStep       = "ce_sagastep"
	HeaderSagaOperation  = "ce_sagaoperation"
	HeaderTraceParent    = "traceparent"
	HeaderTraceState     = "tracestate"
)
