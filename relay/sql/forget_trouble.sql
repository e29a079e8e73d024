-- Trouble of rows that somebody took out of the outbox by hand: their keys wait for nothing.
DELETE FROM troupe.outbox_trouble t
WHERE NOT EXISTS (SELECT FROM troupe.outbox o WHERE o.position = t.position AND o.id = t.id)
