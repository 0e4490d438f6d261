-- Memory of each release's heaps that no block uses, as the mean over all records of `cairn stats`:
-- pages that few blocks pin, free pages, and memory that threads keep.
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
