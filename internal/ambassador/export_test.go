package ambassador

// CheckPath is exported to be fuzzed.
var CheckPath = checkPath
