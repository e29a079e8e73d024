UPDATE troupe.leases SET released_at = clock_timestamp() WHERE id = @lease AND term = @term
