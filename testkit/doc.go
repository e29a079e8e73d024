// Package testkit gives a test its own corner of a real Postgres, a broker and a schema registry. Imported by tests only.
//
// The servers are started on first use and shared by the tests of one binary; TROUPE_POSTGRES, TROUPE_KAFKA and TROUPE_REGISTRY name
// others to use instead. Isolation comes from names: Database and EmptyDatabase give a database of its own, Flow a prefix for topics and
// groups. Both are removed at the test's Cleanup. Tests may run in parallel.
//
// A package whose tests use it has
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// which closes the servers in order and fails the package if goroutines were left behind. Without it the servers end with the process.
//
// For tests of handlers there is testkit/participanttest. It is a package beside this one since it imports participant:
// the packages below participant use this one in their own tests, and must neither wait for it to compile nor import it
// in a circle.
package testkit
