package participant

import "github.com/troupe-go/troupe/internal/deadletter"

// HeaderProfile adds to the copy on the dlq topic the headers that another framework's tools read.
type HeaderProfile int

// The profiles, which may be combined.
const (
	// SpringHeaders adds the headers of Spring Kafka's DeadLetterPublishingRecoverer, numbers in its binary form.
	SpringHeaders = HeaderProfile(deadletter.Spring)
	// ConnectHeaders adds the headers of Kafka Connect's errors.deadletterqueue.context.headers.enable (KIP-298), all text.
	ConnectHeaders = HeaderProfile(deadletter.Connect)
)
