package run

import "fmt"

// checkFaults: whatever was done to a process's connections, it went on. Kills are not its own doing.
func checkFaults(faults []string) Check {
	v := verdict{name: "no process ended by itself", want: "0", got: fmt.Sprint(len(faults)), against: faults}
	return v.check()
}

// checkStopped: every process ended with status 0, within its time, when it was asked to.
func checkStopped(processes int, unclean []string) Check {
	v := verdict{
		name: "every process stopped cleanly", want: fmt.Sprintf("%d of %d", processes, processes),
		got: fmt.Sprintf("%d of %d", processes-len(unclean), processes), against: unclean,
	}
	return v.check()
}
