// Package credentials reads the secrets of a connection when the connection is opened, so that a new secret needs no restart: from a
// file, or from the output of a command that the user names, such as `aws rds generate-db-auth-token`. It knows no cloud provider.
//
//	source    read                                        a failure
//	file      for each connection                         the connection fails with the file's error
//	command   run for each connection; connections that   the connection fails with the exit status and the standard error, or with the
//	          open at the same time share one run         time limit, or because it printed nothing
//
// No error contains a secret. The standard output of a command is in no error and no log; its standard error is quoted in the error
// without the text of the output and without the values of secret variables.
package credentials
