UPDATE troupe.retention
SET removed = removed + @removed::bigint, passed_at = CASE WHEN @passed THEN clock_timestamp() ELSE passed_at END
WHERE kind = @kind
