-- The first transaction locks the row; the others wait, and see its result.
INSERT INTO troupe.joins AS j (consumer_group, name, key, arrived, status, ended_at, forget_at)
SELECT @group, @name, @key, ARRAY[@part::text], CASE WHEN whole THEN 'complete' ELSE 'open' END,
       CASE WHEN whole THEN now() END, CASE WHEN whole THEN now() + make_interval(secs => @retention::float8) END
FROM (SELECT ARRAY[@part::text] @> @awaited::text[] AS whole) AS w
ON CONFLICT (consumer_group, name, key) DO UPDATE
SET news = j.status = 'open' AND (@part <> ALL (j.arrived) OR j.arrived @> @awaited::text[]), -- an earlier declaration awaited more
    arrived = CASE WHEN j.status = 'open' AND @part <> ALL (j.arrived) THEN j.arrived || @part::text ELSE j.arrived END,
    status = CASE WHEN j.status = 'open' AND j.arrived || @part::text @> @awaited::text[] THEN 'complete' ELSE j.status END,
    ended_at = CASE WHEN j.status = 'open' AND j.arrived || @part::text @> @awaited::text[] THEN now() ELSE j.ended_at END,
    forget_at = CASE WHEN j.status = 'open' AND j.arrived || @part::text @> @awaited::text[]
                     THEN now() + make_interval(secs => @retention::float8) ELSE j.forget_at END
RETURNING news, status, cardinality(arrived)
