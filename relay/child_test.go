package relay_test

const childEnv = "TROUPE_RELAY_TEST_CHILD"

func child() int { return 0 }
