-- The processes that grew most between their first and their last record of `cairn stats`.
WITH looks AS (
    SELECT
        host, pid, program, release, time, allocated_bytes,
        ROW_NUMBER() OVER (PARTITION BY host, pid, program ORDER BY time) AS from_first,
        ROW_NUMBER() OVER (PARTITION BY host, pid, program ORDER BY time DESC) AS from_last
    FROM stats
)
SELECT
    oldest.host,
    oldest.pid,
    oldest.program,
    newest.release,
    oldest.time AS since,
    newest.time AS until,
    oldest.allocated_bytes AS bytes_before,
    newest.allocated_bytes AS bytes_now,
    newest.allocated_bytes - oldest.allocated_bytes AS growth
FROM looks AS oldest
JOIN looks AS newest
    ON newest.host = oldest.host AND newest.pid = oldest.pid AND newest.program = oldest.program
WHERE oldest.from_first = 1 AND newest.from_last = 1
    AND newest.allocated_bytes > oldest.allocated_bytes
ORDER BY growth DESC, oldest.host, oldest.pid
LIMIT 20;
