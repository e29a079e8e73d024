DELETE FROM troupe.started WHERE lease_id = @lease AND topic_id = @topic_id AND "offset" = @offset
