-- What the heaps of each release take beside the blocks in use, in the mean of a look, of
-- `cairn stats`: pages that few blocks hold, pages that are free, what threads keep.
SELECT
    program,
    release,
    COUNT(*) AS looks,
    AVG(allocated_bytes) AS allocated,
    AVG(active_bytes - allocated_bytes) AS free_in_pages_in_use,
    AVG(dirty_bytes) AS free_pages,
    AVG(kept_bytes) AS kept,
    AVG(resident_bytes) AS resident
FROM stats
GROUP BY program, release
ORDER BY free_in_pages_in_use DESC, program, release;
