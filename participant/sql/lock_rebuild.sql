-- Locks the group's open rebuild until the lease is taken. A cancellation between the statements that begin and read it would leave the
-- watermark set back, without a rebuild that handles the messages. One that is started after this is begun with the next lease.
SELECT id FROM troupe.rebuilds WHERE consumer_group = @group AND finished_at IS NULL FOR SHARE
