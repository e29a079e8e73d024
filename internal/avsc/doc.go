// Package avsc parses Avro schemas and compares versions of a schema: Check reports whether a new version is compatible with
// earlier ones, at Confluent's levels, with every incompatible field and a remedy, and Diff reports the changes. Neither needs a
// registry. A Cache holds parsed schemas within a limit of memory.
package avsc
