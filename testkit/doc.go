// Package testkit gives each test its own databases and topics on a real Postgres, a broker and a schema registry. Import it in
// tests only.
//
// The servers are started on first use and shared by the tests of one binary. TROUPE_POSTGRES, TROUPE_KAFKA and TROUPE_REGISTRY
// name other servers to use instead. Names isolate the tests: Database and EmptyDatabase return a database of the test's own,
// Flow a prefix for topics and groups. Both are removed at the test's Cleanup. Tests may run in parallel.
//
// A package whose tests use testkit has
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// which closes the servers in order and fails the package if goroutines are left. Without it the servers end with the process.
//
// For tests of handlers there is testkit/participanttest. It is a separate package since it imports participant: the packages
// below participant use testkit in their own tests, which must neither wait for participant to compile nor import it in a cycle.
package testkit
