-- The 20 sites of each release of a program that hold most memory, as the mean over all its dumps. A
-- mean does not depend on the number of the release's processes or on how long they ran.
WITH dumps AS (
    SELECT program, release, COUNT(*) AS dumps
    FROM (SELECT DISTINCT program, release, host, pid, time FROM profile) AS each_dump
    GROUP BY program, release
),
sites AS (
    SELECT program, release, stack_id, SUM(inuse_bytes) AS bytes
    FROM profile
    GROUP BY program, release, stack_id
),
ranked AS (
    SELECT
        program, release, stack_id, bytes / dumps AS bytes_a_dump,
        ROW_NUMBER() OVER (
            PARTITION BY program, release ORDER BY bytes DESC, stack_id
        ) AS place
    FROM sites
    JOIN dumps USING (program, release)
),
-- Only the few sites that are shown get their text, because text takes most of the time.
names AS (
    SELECT stack_id, ANY_VALUE(site) AS site, ANY_VALUE(stack) AS stack
    FROM profile
    WHERE stack_id IN (SELECT stack_id FROM ranked WHERE place <= 20)
    GROUP BY stack_id
)
SELECT program, release, place, site, stack_id, stack, bytes_a_dump
FROM ranked
JOIN names USING (stack_id)
WHERE place <= 20
ORDER BY program, release, place;
