-- +goose Up

-- barrier_forgotten is when the youngest deleted answer to a saga's command was given; null where none was deleted. A
-- command that was sent later has its answer in troupe.answers, or was never answered.
ALTER TABLE troupe.inbox_groups ADD COLUMN barrier_forgotten timestamptz;

-- Answers were deleted before this column was there, the oldest first: all older than the oldest one left may be gone.
-- None was deleted within 2 hours, the least retention.
INSERT INTO troupe.inbox_groups (consumer_group, days, barrier_forgotten)
SELECT g.consumer_group, 0,
       least((SELECT min(a.answered_at) FROM troupe.answers AS a
              WHERE a.consumer_group = g.consumer_group AND a.command_key IS NOT NULL), now() - interval '2 hours')
FROM (SELECT consumer_group FROM troupe.inbox_groups
      UNION SELECT consumer_group FROM troupe.leases
      UNION SELECT consumer_group FROM troupe.answers) AS g
ON CONFLICT (consumer_group) DO UPDATE SET barrier_forgotten = excluded.barrier_forgotten;
