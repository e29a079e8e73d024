package coordinator

// Listing is the statement of List.
var Listing = listing
