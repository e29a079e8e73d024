INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
