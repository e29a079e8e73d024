SELECT saga, status, count(*), extract(epoch FROM clock_timestamp() - min(started_at))::float8
FROM troupe.sagas
WHERE status IN ('waiting', 'running', 'compensating', 'parked')
  AND hop = @hop
  AND consumer_group = @group
GROUP BY saga, status
