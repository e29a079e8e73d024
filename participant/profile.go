package participant

import "github.com/troupe-go/troupe/internal/deadletter"

// HeaderProfile adds to the copy on the dlq topic the headers that another framework's tools look for.
type HeaderProfile int

// The profiles, which may be combined.
const (
	// SpringHeaders are those of Spring Kafka's DeadLetterPublishingRecoverer, numbers in its binary form.
	SpringHeaders = HeaderProfile(deadletter.Spring)
	// ConnectHeaders are those of Kafka Connect's errors.deadletterqueue.context.headers.enable (KIP-298), all text.
	ConnectHeaders = HeaderProfile(deadletter.Connect)
)
