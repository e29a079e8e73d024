// Package coordinator runs sagas: it is a participant that decides, by saga.Decide, what follows from what hops answer, and
// writes the decision, its log, the commands and the deadlines in one transaction.
//
//	hop's event ─► load the saga ─► Decide ─► save: state, log, outbox, deadline ─► commit ─► relay ─► next hop
//	                 FOR UPDATE                version compared
//
// A saga begins by Start, in a transaction of the caller's, by Submit, in one that callers share, or by an event that its
// definition names. It is one row of troupe.sagas, known as its type, a slash and its key: order/o-1. Each decision counts its
// version up and adds one row to troupe.saga_events; the view troupe.saga_log has their moments (StepStarted, StepCompleted, …)
// one by one. Its deadlines stand in its state; the next of them wakes it, as one deadline of the participant.
//
// # Promised
//
// One decision, one transaction: state, log, outbox rows and deadline are there together or not at all. Folding the log by
// saga.Decide gives the state.
//
// One at a time: whoever has loaded a saga is the only one who changes it until the transaction ends. A transaction takes
// Config.Batch messages of the participant, of any sagas, loads them all in the order of their ids, and saves them with one
// statement for each table.
//
// One instance for each key. A start by an event that comes again, by a call that is repeated, or by many at once begins
// one; what another one brought is not taken over, also when the first has ended.
//
// A saga keeps its definition: each is stored under its hash before any saga has it, and whoever decides reads it there.
//
// An event that comes before the saga that awaits it is kept in troupe.saga_stash for as long as the definition says (1 h
// unless set), and given to it when it begins, or when the variable that it is found by is set. Each event that is stashed
// deletes up to two that have expired.
//
// Who holds a lock (Spec.Lock) keeps it until it has ended, parked or not. The others wait in the order in which they began;
// what comes for them is kept. A lock is among the sagas of one type in one database.
//
// # What happens when
//
//	what happens                        what follows
//	an event comes twice                nothing: the inbox knows it; where that has forgotten it, Decide ignores it
//	an answer comes late                ignored, or it settles a doubt, as package saga says
//	a start whose when, set or lock     a dead letter of the coordinator's hop: of the event, or, where that is also for
//	cannot be evaluated, an event that  another saga, of its own (troupe.Apart), so that the other saga takes it. Mend the
//	a saga has no room to keep          definition, and redrive it
//	an event that is for no other saga  a dead letter of the coordinator's hop: redrive it with the value, or discard it. Where
//	and has no key, or a null or empty  another saga takes the event, that one only
//	field, where a saga awaits it by
//	that
//	a saga of a type that another       Start gives an error, a start by an event is a dead letter; New refuses while sagas
//	coordinator has in this database    of the other are under way: ids, locks and stashed events go by the type's name
//	an answer for a saga that is not    ignored: Decided is told, nothing is written
//	there, or that has ended
//	an answer for a type of saga that   passed over, for good: it is somebody else's. See below
//	is not in Config.Definitions
//	events for one saga at once         the second waits for the row, and is decided on what the first one left
//	two coordinators at once            the same; each decides for the partitions that its participant has
//	started twice at once               one starts; the transaction of the other runs again and finds it. Start gives
//	                                    ErrConflict: roll back, and try again. Submit tries again by itself
//	one of several that are submitted   each is tried by itself; the error is its caller's alone
//	together is refused
//	an event before its saga            stashed; both see each other, since each guards the association first
//	an event found by a variable, when  kept all the same, since it may be early for the next saga of that value, which gets
//	the saga of that value has ended    it: let values be ones that no two sagas have within Stash, such as ids, where a
//	                                    late event must reach nobody. One that is found by the key is ignored
//	a crash before the commit           nothing of it is there; the message is delivered again
//	a crash after the commit            the relay sends what stands in the outbox; the message is known
//	an answer that cannot be read,      tried as the participant's Retry says, unless trying again cannot help; then a dead
//	a command that cannot be rendered   letter of the coordinator's own hop, and the saga is parked with the reason
//	an expression that fails, an        the saga is parked with the reason; other sagas of the batch are not touched
//	answer of a type that is unknown
//	the database is away                the participant waits; no attempt is counted, nothing is lost
//	no coordinator runs                 events wait in Kafka; deadlines that have come meanwhile are met when one runs
//	a definition was changed            new sagas get it, those that run keep theirs; Config.Definitions has one of each type
//	the event that wakes a saga and     whichever commits first; the other one is decided on what it left
//	a deadline race
//
// # Rolling out another version
//
// Processes with the old and the new version of a definition may run side by side: each starts sagas with its own, and both
// go on with either, also with a type that only the other has. One thing is left to mind: a process learns what a new version
// awaits, of events that answer no command, when it first decides for a saga of it; an event that no version known to it
// awaits is passed over for good. So let the new version run everywhere before it starts sagas that await more.
//
// New subscribes to the hops of its definitions and of each stored definition of the same types, since an older process, or
// Desk.Start, may begin a saga of one that has no saga now. A definition that is stored later may read other hops. A process
// that meets one logs an error with the hop: where no other process of the group consumes that, restart this one, or the saga
// waits. Delete the rows of retired definitions from troupe.saga_definitions to be rid of their hops, where no saga has them.
//
// # Not promised
//
// Isolation between sagas, beyond Lock. That a saga ends: what is parked waits for a person, and a step without a time-out
// for its answer; troupe saga verify warns of the latter. That hops do as they say: an effect once is their barrier's doing.
// Order between events of different hops: they come as they come, and Decide keeps those that are too early.
//
// # Concurrency and size
//
// A Coordinator may be used by any number of goroutines; at most the participant's Concurrency transactions run at once.
// A saga under way is one row, of which each decision writes a new version of some hundred bytes to some KiB, and each log
// entry stays: delete what has ended and is of no more interest from troupe.sagas and troupe.saga_events.
//
// Its Store is where sagas are kept. Postgres is the one that runs; Memory is one for tests, with the whole routing in
// virtual time; package storetest holds both, and any third, to what Store says.
//
// # Least privilege
//
// The role of Config.Pool needs the rights that `outbox-relay grants saga` prints; its participant's are among them.
// The role adds to the sagas' log, and can neither read nor change it.
package coordinator
