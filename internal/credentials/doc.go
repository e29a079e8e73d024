// Package credentials reads the secrets of a connection when the connection is opened, so that a new secret needs no restart.
// It reads them from a file, or from the output of a command that the user names, such as `aws rds generate-db-auth-token`. It
// contains no SDK of a cloud provider.
//
//	source    read                                   if that fails, the connection fails with
//	file      for each connection                    the error of the file
//	command   run for each connection; connections   the exit status and the standard error, the time limit, or the fact that the
//	          that open at the same time share one   command printed nothing
//	          run
//
// No error contains a secret. No error and no log contains the standard output of a command. An error quotes the standard error
// of a command, without any part of the standard output and without the values of variables that are secret by their name.
package credentials
