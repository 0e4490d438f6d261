-- The releases that grew, by site: the mean of a release's dumps against that of the previous release
-- of the program. Stacks are compared by their functions, so changed line numbers do not matter.
WITH releases AS (
    SELECT
        program, release, dumps,
        LAG(release) OVER (PARTITION BY program ORDER BY first_seen, release) AS before
    FROM (
        SELECT program, release, COUNT(*) AS dumps, MIN(time) AS first_seen
        FROM (SELECT DISTINCT program, release, host, pid, time FROM profile) AS each_dump
        GROUP BY program, release
    ) AS seen
),
means AS (
    SELECT
        sites.program, sites.release, sites.stack_id,
        sites.bytes / releases.dumps AS bytes_a_dump
    FROM (
        SELECT program, release, stack_id, SUM(inuse_bytes) AS bytes
        FROM profile
        GROUP BY program, release, stack_id
    ) AS sites
    JOIN releases ON releases.program = sites.program AND releases.release = sites.release
),
-- The aliases are for ClickHouse, which calls a column of a join `means.stack_id` otherwise.
largest AS (
    SELECT
        means.program AS program,
        releases.before AS release_before,
        means.release AS release,
        means.stack_id AS stack_id,
        COALESCE(older.bytes_a_dump, 0) AS bytes_before,
        means.bytes_a_dump AS bytes_now,
        means.bytes_a_dump - COALESCE(older.bytes_a_dump, 0) AS growth
    FROM means
    JOIN releases ON releases.program = means.program AND releases.release = means.release
    LEFT JOIN means AS older
        ON older.program = means.program AND older.release = releases.before
        AND older.stack_id = means.stack_id
    WHERE releases.before IS NOT NULL
    ORDER BY growth DESC, means.stack_id
    LIMIT 20
),
-- Only the few sites that are shown get their text, because text takes most of the time.
names AS (
    SELECT stack_id, ANY_VALUE(site) AS site, ANY_VALUE(stack) AS stack
    FROM profile
    WHERE stack_id IN (SELECT stack_id FROM largest)
    GROUP BY stack_id
)
SELECT
    program, release_before, release, site, stack_id, stack, bytes_before, bytes_now, growth
FROM largest
JOIN names USING (stack_id)
ORDER BY growth DESC, stack_id;
