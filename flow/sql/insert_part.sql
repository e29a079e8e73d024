INSERT INTO troupe.join_parts (consumer_group, name, key, part, headers, payload)
VALUES (@group, @name, @key, @part, @headers, @payload)
