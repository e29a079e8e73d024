-- Makes claimed entries that did not run pending again. It changes nothing else in them.
UPDATE troupe.local_work AS w
SET status    = 'pending',
    locked_at = NULL,
    locked_by = NULL
WHERE w.consumer_group = @group
  AND w.position = ANY (@positions::bigint[])
  AND w.term = (@terms::integer[])[array_position(@positions, w.position)]
  AND w.status = 'in progress'
