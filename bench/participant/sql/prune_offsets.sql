DELETE FROM troupe.inbox_offsets WHERE lease_id = @lease AND (high <= @watermark OR topic_id <> @topic_id)
