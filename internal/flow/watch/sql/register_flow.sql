-- Says which declaration a flow is judged by. One row where it was another before, or none.
INSERT INTO troupe.watch_flows AS f (flow, declared, answer)
VALUES (@flow, @declared, @answer)
ON CONFLICT (flow) DO UPDATE
SET declared = excluded.declared,
    answer = excluded.answer
WHERE (f.declared, f.answer) IS DISTINCT FROM (excluded.declared, excluded.answer)
RETURNING flow
