// Package coordinator runs sagas. A coordinator is a participant that decides with saga.Decide which commands follow an answer.
// It writes the decision, its log, the commands and the deadlines in one transaction.
//
//	hop's event ─► load the saga ─► Decide ─► save: state, log, outbox, deadline ─► commit ─► relay ─► next hop
//	                 FOR UPDATE                version compared
//
//	row of troupe.deadlines ─► due: a member of the group writes its message to the outbox ─► relay ─► coordinator's commands ─► wake
//
// Start begins a saga in a transaction of the caller, and Submit in a transaction that several callers share. An event that its
// definition names begins a saga too.
//
// A saga is one row of troupe.sagas. Its id is its type, a slash and its key: order/o-1. Each decision increments the saga's
// version and adds one row to troupe.saga_events. The view troupe.saga_log lists the moments of these rows (StepStarted,
// StepCompleted, …) one by one. A saga's deadlines are stored in its state. The earliest of them is scheduled as one deadline of
// the participant, which wakes the saga.
//
// The participant reads events from Kafka. A topic may also be local: the messages are then rows of troupe.local_work, since its
// writers share the coordinator's database. Package participant describes the failures of delivery, the attempts, the deadlines and the
// outbox.
//
// # Promised
//
// One decision, one transaction: state, log, outbox rows and deadline are committed together or not at all. Applying the entries
// of the log with saga.Decide (and saga.Migrate, for a move to another definition) gives the state. This holds for entries that
// this version of the program made: an earlier version may have decided otherwise, or allowed a move that this one refuses.
//
// One at a time: once a transaction has loaded a saga, no other transaction changes the saga until the first one ends. A transaction
// handles up to Batch messages (participant.Config), of any sagas.
//
// Deadlocks are possible. A transaction locks the sagas that it finds at first in the order of their ids. Later it may lock more:
// a saga that was not visible at first, one that is granted the lock of a saga that has ended, and the kept events of a value. If two
// transactions deadlock, Postgres aborts one of them, with ErrConflict. The participant runs it again. From then on the participant's batches
// take turns for a while, which it logs.
//
// One instance for each key: a repeated start event, a repeated call, and many starts at once all begin one instance. The data
// of the other starts is not used, even if the first instance has ended.
//
// A saga keeps its definition. New stores each definition under its hash before any saga uses it, and every process that decides for the
// saga reads it there. If the database has lost a definition, as after a restore, the processes that have it store it again within some 5 s.
// Until then another process cannot read a new saga of it, and tries the saga's messages again.
//
// An event that comes before the saga that awaits it, or before its step, is stashed: it is kept in troupe.saga_stash.
//
//   - Sagas with its value run, and a later step of theirs will await it: it is kept for each of them, until the step begins, or the saga ends or
//     cannot use it any more.
//   - No saga with its value runs: it is kept for the next one, for the time Stash of the definition (1 h unless set), and longer while a saga
//     with its value runs. The first saga that awaits it uses it: when the saga begins, when its step begins, or when the variable is set by
//     which the event finds the saga.
//   - It was kept for one saga only, by a variable, and this saga cannot use it any more: it is kept for the next one again. The other sagas
//     of that value search the stash then, in one transaction: a row of troupe.deadlines with the name search-stash.
//
// Expired events of a type of saga are deleted when another event of that type is stashed, up to two each time. While the
// coordinator does not run, or is not ready, for more than a minute, no stashed event expires: the event that begins its saga may
// wait in Kafka. Nor does one expire in the time that a restored database has lost.
//
// A saga that holds a lock (Spec.Lock) keeps it until it has ended, also while it is parked. The other sagas wait in the order
// in which they began, and their events are kept. A lock excludes sagas of one type in one database.
//
// # Failures
//
//	event                               effect
//	an event comes twice                none: the inbox has recorded it. After the inbox entry has been deleted, a repeated answer
//	                                    or start is ignored, and so is a repeated awaited event of which the saga knows that a step
//	                                    has used it. If that saga has ended, the event is stashed as a new one
//	an answer comes late                ignored, or it ends the doubt about its step: see package saga
//	a start whose when, set or lock     the event becomes a dead letter of the coordinator's hop. If the event is also for another
//	cannot be evaluated                 saga, that saga takes it, and a message for this saga alone (troupe.RetryEvent) becomes the dead
//	                                    letter. Correct the definition and redrive the dead letter
//	an event that cannot be stashed,    a dead letter of the coordinator's hop. If the event is also for another saga, that saga
//	since 8 MiB are stashed already     takes it, and a message for this saga or value alone (troupe.RetryEvent) becomes the dead letter.
//	for its saga or value               Redrive it when a saga has used some of the others
//	an awaited event that has no key,   a dead letter of the coordinator's hop: redrive it with a value, or discard it. If the
//	or no value in the field by which   event is also for another saga, no dead letter is written
//	it finds its saga
//	another coordinator has sagas of    New returns an error while one of them is under way, since ids, locks and stashed events
//	a type in this database             use the type's name only. With the key of one of them, Start returns an error, and an event
//	                                    that would start a saga is a dead letter
//	an answer for a saga that has       ignored: Config.Decided is called, nothing is written. One that shows that the saga
//	ended                               misses an effect, or has left one behind, is a dead letter
//	an answer for a saga that does not  tried again: the database may have lost the saga's last decisions, and the messages that
//	exist, or for a command that its    led to them are read again in any order. If the saga exists, the answer is tried again
//	saga has not sent                   until the saga takes it or has ended; after an hour a warning is logged. An answer for a
//	                                    saga that does not exist is ignored after an hour, with a warning; at once if it is older
//	                                    than a day and than all sagas of the database. Until then it is a row of troupe.deadlines
//	                                    with the name retry-event and the saga's id as its key
//	an answer for a type of saga that   decided if the saga is stored for this coordinator, since another process has started it.
//	is not in Config.Definitions        Otherwise it is ignored: at once if this process knows no definition of the type, since
//	                                    the saga belongs to another coordinator, and as above if it knows one
//	events for one saga at once         the second waits for the row, and is decided on the state that the first one stored
//	two processes of a coordinator      the same; each decides for the partitions that its participant has
//	started twice at once               one starts; the transaction of the other runs again and finds it. Start returns
//	                                    ErrConflict: roll back, and try again. Submit tries again by itself
//	one of several that are submitted   each is tried by itself; only its own caller gets the error
//	together is refused
//	an event before its saga            stashed; the event and the start see each other, since each guards the association first
//	an event found by a variable, when  stashed too, since it may be early for the next saga of that value, which gets it. If a
//	the saga of that value has ended    late event must reach no other saga, use values that no two sagas have within Stash,
//	                                    such as ids. An event that is found by the key is ignored
//	an event found by a variable, while ignored, and the next saga of that value does not get it
//	a saga of that value runs, no step
//	of which awaits it any more
//	a crash before the commit           nothing is stored; the message is delivered again. Call Start, Submit or Act again
//	an event that ends the process      after the sixth crash (the fifth, if its topic is local) the event is a dead letter. If it
//	each time                           is an answer, its saga is parked
//	a crash after the commit            the relay sends the outbox rows; the inbox recognises the message. Start and Submit, called
//	                                    again, find the saga. For these decisions no hook of Config is called, and no line about a
//	                                    parked saga, an ignored answer or expired events is logged: alert on the parked sagas of
//	                                    Stats. Nothing else shows which stashed events have expired
//	the relay publishes a row twice     the hop's inbox recognises the second command by its id
//	a commit with unknown result        as a crash before or after the commit: the inbox decides whether the message is handled
//	                                    again. Submit returns an error; submit again. Act is not idempotent: read the saga's log
//	                                    before you repeat it. A second ActRetry of a step without a time-out sends another command
//	a process freezes in a transaction  another member takes over its partitions, and ends its sessions. But a frozen transaction of
//	                                    Start, Submit or Act stays open, and others wait for its sagas and locks, until Postgres
//	                                    ends the session (idle_in_transaction_session_timeout). A message that waits for longer
//	                                    than the participant's Timeout has failed, which counts as an attempt. pg_blocking_pids
//	                                    finds the session
//	an answer that cannot be read, or   tried as the participant's Retry says, unless trying again cannot help; then a dead
//	after which a command cannot be     letter of the coordinator's own hop, with an exhausted event. When the coordinator gets that
//	rendered                            event, it parks the saga with the reason; until then the saga seems to run. The participant
//	                                    counts the attempts in troupe.held. It does not count a run that a crash ends
//	the exhausted event about such an   the exhausted event becomes a dead letter too: the saga is not parked, and seems to run.
//	answer cannot be handled            Redrive the answer's dead letter to continue the saga, or the other one to park it
//	an awaited event or a deadline      tried likewise; then a dead letter, and the saga stays as it was. An event that
//	after which a command cannot be     several sagas await is a dead letter for all of them. Redrive it once the command
//	rendered                            can be rendered. Nothing else wakes the saga while this deadline is its earliest
//	an expression that fails, an        the saga is parked with the reason; other sagas of the batch are not affected
//	answer of a type that is unknown,
//	a command or an event with more
//	JSON than the outbox takes
//	the definition of a saga cannot be  its events and wakes become dead letters after the attempts of the participant's Retry; the
//	read, as after a rollback           saga is not parked. Other sagas go on, also one that ends and passes its lock to that saga.
//	                                    New logs an error
//	the wake of a saga that was         the saga keeps the lock and waits, and so do the sagas behind it. Redrive the dead letter,
//	granted its lock is a dead letter   of type troupe.Wake, or abandon the saga
//	the database is away                the participant waits; no attempt is counted, nothing is lost
//	Kafka is away                       fetched events are still decided on; their commands and due deadlines wait in the outbox,
//	                                    as if no relay ran
//	the dead letter of an answer is     no saga is parked, and the step waits on: the exhausted event does not name the saga. A
//	deleted before its exhausted event  warning is logged, with the ids
//	comes
//	no coordinator runs                 events wait in Kafka. When one runs again, it handles the events that Kafka has by then, and
//	                                    the deadlines that are due after them: an event that came in time counts
//	no relay runs                       commands and due deadlines wait in the outbox, unless their topics are local. If the time-out
//	                                    of a step passes meanwhile, the deadline is published right after the command: the step is
//	                                    in doubt before its answer comes
//	a definition was changed            new sagas use it, running ones keep theirs; Config.Definitions has one of each type
//	an event and a deadline of a saga   the first to commit is decided; the second is decided on the state that the first stored
//	at once
//
// # Rolling out another version
//
// Processes with the old and the new version of a definition may run side by side. Each starts sagas with its own version, and
// both continue sagas of either version, also of a type that only the other process has.
//
// A transaction that handles events first reads the definitions of the coordinator's types that other processes have stored since.
// New stores a definition before any saga has it. So an event finds the saga that awaits it, whichever process handles the event.
// While no event comes, a process looks for new definitions every 5 s.
//
// If such a definition reads other hops, the process consumes them too: it joins its group again, or makes their topics local. A
// topic of Kafka that the group has not consumed before is read from its start, so that old events may begin sagas, and old
// awaited events are stashed.
//
// A process always consumes the events of the coordinator's own hop. If no definition that New has found reads this hop, the
// process skips an event that a saga emits there and that no known definition awaits.
//
// The participant may have handlers of its own for events of a hop that no definition in Config.Definitions reads. If another version's
// definition reads this hop, an event is decided on before it is handled, in one transaction. If such a handler reads a hop that is not the
// coordinator's, an event that answers no command finds its saga once the process has found the definition, within 5 s.
//
// While the topic of a hop that only another version's definition reads does not exist, and cannot be created, or may not be read, the process
// logs an error and runs without it. A step may then be timed out although its answer is in that topic. But if the group has consumed the topic before,
// and may still see it, time-outs wait for its messages as they wait for a partition that cannot be read: for a minute. With local work the process
// also runs without a topic that is not local and that its role may not make local. Without a topic of a hop that Config.Definitions read, it does
// not run.
//
// An older process does not do everything for another version. It starts no saga by an event by which only the other version
// starts one. And it does not stash an event that only the following definitions await:
//
//   - definitions of a type that is not in its Config and has no saga yet
//   - definitions that were stored before the process began, and of which it knows no saga
//
// So let the new version run everywhere before its start events come. Nor does a process of the new version stash an event that only
// such a former definition awaits. If processes of the former version go on to start sagas of it, and none was under way when the new
// process began, the event must not come before its saga: stop the starts until the old processes have ended.
//
// New also consumes the hops of each stored definition of its types, since an older process, or troupe saga start, may begin a
// saga of a definition that no saga has now. To stop consuming the hops of retired definitions, delete their rows from
// troupe.saga_definitions once no saga has them, and restart the processes.
//
// # Schedules
//
// Each coordinator runs the schedules of its database that start sagas of Config.Definitions or send messages: docs/schedules.md.
// One process runs an occurrence, in one transaction. The key of its saga is the schedule's name with the time of the occurrence.
//
// # Not promised
//
// Isolation between sagas, except by Lock.
//
// An end of each saga: a parked saga waits for an operator, and a step without a time-out waits for its answer. The command
// troupe saga verify warns of such a step.
//
// The truth of an answer: the coordinator believes what a hop answers. The barrier of the hop ensures that an effect happens once.
//
// Order between events of different hops: each is decided when it arrives. An event that comes before its step awaits it is kept.
//
// # Concurrency and size
//
// A Coordinator may be used by any number of goroutines. Messages are handled in at most Concurrency transactions at once
// (participant.Config); Submit runs up to four more. A saga under way is one row. Each decision writes a new version of it, of some
// hundred bytes to some KiB. Ended sagas are removed with their logs after the time in troupe.retention, 90 days by default:
// docs/retention.md.
//
// # Least privilege
//
// The role of Config.Pool needs the rights that `outbox-relay grants saga` prints; they include its participant's. The role can
// add to the sagas' log, and can neither read nor change it.
package coordinator
