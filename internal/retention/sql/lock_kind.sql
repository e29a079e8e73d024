-- No row if another session removes records of this kind.
SELECT kind
FROM troupe.retention
WHERE kind = @kind
FOR UPDATE SKIP LOCKED
