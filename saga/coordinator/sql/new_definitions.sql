-- Finds the definitions that a process does not know: of its types, and of each type whose sagas under way belong to its coordinator.
-- All sagas under way of one type belong to one coordinator, so it checks one of them.
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
