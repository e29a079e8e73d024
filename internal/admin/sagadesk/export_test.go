package sagadesk

// Listing returns List's statement.
var Listing = listing

// The statements of Started.
var WeighStarted, CountStarted, SampleStarted = weighStarted, countStarted, sampleStarted

// CountedTo is the number of sagas of a status up to which Started counts one by one.
const CountedTo = countedTo
