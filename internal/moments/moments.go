// Package moments names the entries of a saga's history: the values of saga.Moment's What, which troupe.saga_log has.
package moments

// The entries.
const (
	SagaStarted           = "SagaStarted"
	SagaWaiting           = "SagaWaiting"
	SagaGranted           = "SagaGranted"
	SagaCompensating      = "SagaCompensating"
	SagaParked            = "SagaParked"
	SagaResumed           = "SagaResumed"
	SagaCompleted         = "SagaCompleted"
	SagaCompensated       = "SagaCompensated"
	SagaAbandoned         = "SagaAbandoned"
	SagaMigrated          = "SagaMigrated"
	CancelAccepted        = "CancelAccepted"
	CancelRefused         = "CancelRefused" // the cancel came too late, and the saga goes on
	VariablesSet          = "VariablesSet"
	StepStarted           = "StepStarted"
	StepCompleted         = "StepCompleted"
	StepFailed            = "StepFailed"
	StepSkipped           = "StepSkipped"
	StepExhausted         = "StepExhausted"
	StepTimedOut          = "StepTimedOut"
	StepTolerated         = "StepTolerated" // the saga goes on without an optional step that failed
	StepResolved          = "StepResolved"
	CompensationStarted   = "CompensationStarted"
	CompensationCompleted = "CompensationCompleted"
	CompensationFailed    = "CompensationFailed"
	DeadlineMet           = "DeadlineMet"
	DeadlineKept          = "DeadlineKept" // the deadline is kept until the parked saga is resumed
)
