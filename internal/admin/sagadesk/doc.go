// Package sagadesk shows operators the sagas of one database and applies their actions, for the command line and the console.
// It needs no running coordinator: it writes in the coordinator's name, by package decisions.
package sagadesk
