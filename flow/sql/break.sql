INSERT INTO troupe.joins AS j (consumer_group, name, key, arrived, status, broken_by, ended_at, forget_at)
VALUES (@group, @name, @key, '{}', 'broken', @part, now(), now() + make_interval(secs => @retention::float8))
ON CONFLICT (consumer_group, name, key) DO UPDATE
SET news = j.status = 'open',
    broken_by = CASE WHEN j.status = 'open' THEN @part ELSE j.broken_by END,
    ended_at = CASE WHEN j.status = 'open' THEN now() ELSE j.ended_at END,
    forget_at = CASE WHEN j.status = 'open' THEN now() + make_interval(secs => @retention::float8) ELSE j.forget_at END,
    status = CASE WHEN j.status = 'open' THEN 'broken' ELSE j.status END
RETURNING news, status, cardinality(arrived)
