SELECT hash
FROM unnest(@hashes::text[]) AS mine (hash)
WHERE NOT EXISTS (SELECT FROM troupe.saga_definitions AS d WHERE d.hash = mine.hash)
