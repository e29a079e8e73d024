// Package ent has the code that ent generates from schema.
package ent

//go:generate go run -mod=mod entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/lock ./schema
