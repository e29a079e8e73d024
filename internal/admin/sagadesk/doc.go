// Package sagadesk shows operators the sagas of one database and applies their actions, for the command line and the console.
// It needs no running coordinator: package decisions writes in the coordinator's name.
package sagadesk
