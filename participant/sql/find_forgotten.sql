SELECT barrier_forgotten FROM troupe.inbox_groups WHERE consumer_group = $1
