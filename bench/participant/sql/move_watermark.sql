UPDATE troupe.leases
SET topic_id        = @topic_id,
    watermark       = @watermark,
    watermark_epoch = @epoch,
    released_at     = CASE WHEN @released THEN clock_timestamp() END
WHERE id = @lease AND term = @term
