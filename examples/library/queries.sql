-- name: TakeCopy :one
UPDATE copies SET free = free - 1 WHERE isbn = $1 AND free > 0 RETURNING free;

-- name: PutCopyBack :exec
UPDATE copies SET free = free + 1 WHERE isbn = $1;

-- name: AddLoan :exec
INSERT INTO loans (loan_id, reader, isbn) VALUES ($1, $2, $3);

-- name: ReturnLoan :one
UPDATE loans SET returned = true WHERE loan_id = $1 AND NOT returned RETURNING isbn;

-- name: AssignLocker :one
UPDATE lockers SET loan_id = @loan_id WHERE (branch, number) = (
  SELECT l.branch, l.number FROM lockers l WHERE l.branch = @branch AND l.loan_id IS NULL ORDER BY l.number LIMIT 1 FOR UPDATE
) RETURNING number;
