package run

import "fmt"

// checkFaults checks that no process ended by itself, after any fault of its connections. Kills do not count.
func checkFaults(faults []string) Check {
	v := verdict{name: "no process ended by itself", want: "0", got: fmt.Sprint(len(faults)), against: faults}
	return v.check()
}

// checkStopped checks that every process ended with status 0, within its time, after SIGTERM.
func checkStopped(processes int, unclean []string) Check {
	v := verdict{
		name: "every process stopped cleanly", want: fmt.Sprintf("%d of %d", processes, processes),
		got: fmt.Sprintf("%d of %d", processes-len(unclean), processes), against: unclean,
	}
	return v.check()
}
