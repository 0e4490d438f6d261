-- The sites that hold most memory in the whole fleet, by the last dump of each process.
WITH last_dump AS (
    SELECT host, pid, program, MAX(time) AS time
    FROM profile
    GROUP BY host, pid, program
)
SELECT
    program,
    site,
    stack_id,
    ANY_VALUE(stack) AS stack,
    SUM(inuse_bytes) AS bytes,
    COUNT(*) AS processes,
    SUM(inuse_bytes) / COUNT(*) AS bytes_a_process
FROM profile
JOIN last_dump USING (host, pid, program, time)
GROUP BY program, site, stack_id
ORDER BY bytes DESC, stack_id
LIMIT 20;
