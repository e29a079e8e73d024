// Package registry is a client of a schema registry with Confluent's REST API. Package schemas uses it for payloads, and the
// operator's tools use it to examine, register and delete the versions of subjects.
package registry
