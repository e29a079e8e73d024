package coordinator

// Listing is the statement of List.
var Listing = listing

// The statements of Started.
var WeighStarted, CountStarted, SampleStarted = weighStarted, countStarted, sampleStarted

// CountedTo is up to how many sagas of a status Started counts one by one.
const CountedTo = countedTo

// Submissions is how many callers of Submit wait.
func (c *Coordinator) Submissions() int {
	n, _ := c.submissions.Load()
	return n
}
