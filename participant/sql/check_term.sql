SELECT FROM troupe.leases WHERE id = $1 AND term = $2
