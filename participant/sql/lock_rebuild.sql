-- Locks the group's open rebuild until the lease is taken. Otherwise a cancellation between the statements that begin and read the rebuild would
-- leave the watermark set back, and no rebuild would handle the messages. A rebuild that is started after this statement begins with the next lease.
SELECT id FROM troupe.rebuilds WHERE consumer_group = @group AND finished_at IS NULL FOR SHARE
