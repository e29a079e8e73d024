-- Definitions that a process does not know: of its types, and of each type whose sagas under way belong to its coordinator.
-- All sagas of a type that are under way belong to one coordinator, so one of them suffices.
SELECT d.hash, d.definition
FROM troupe.saga_definitions AS d
WHERE d.hash <> ALL (@known::text[])
  AND (d.saga = ANY (@names::text[])
       OR (SELECT s.hop = @hop AND s.consumer_group = @group
           FROM troupe.sagas AS s
           WHERE s.saga = d.saga
             AND s.status IN ('waiting', 'running', 'compensating', 'parked')
           LIMIT 1))
ORDER BY d.hash
