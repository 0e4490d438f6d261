-- Work for PostgreSQL: sorts, joins, jsonb, regular expressions, PL/pgSQL, recursion; each query
-- ends in one digest or count.

CREATE TABLE event AS
    SELECT i, i % 977 AS owner, md5(i::text) AS tag, (i * 7919::bigint) % 100003 AS score,
           repeat(chr(97 + i % 26), i % 300) AS body
    FROM generate_series(1, 150000) AS i;
CREATE INDEX ON event USING btree (tag);
CREATE INDEX ON event USING gin (to_tsvector('simple', tag || ' ' || body));
CREATE FUNCTION collatz(n bigint) RETURNS int LANGUAGE plpgsql AS $$
    DECLARE steps int := 0;
    BEGIN
        WHILE n <> 1 LOOP
            n := CASE WHEN n % 2 = 0 THEN n / 2 ELSE 3 * n + 1 END;
            steps := steps + 1;
        END LOOP;
        RETURN steps;
    END $$;
ANALYZE event;
SET work_mem = '1MB';
SELECT md5(string_agg(tag, ',' ORDER BY score DESC, tag)) FROM event;
SET work_mem = '64MB';
SELECT md5(string_agg(t, ',')) FROM (
    SELECT a.tag || count(*) || sum(b.score) AS t
    FROM event a JOIN event b ON a.owner = b.score % 977
    WHERE a.i % 50 = 0 AND b.i % 20 = 0 GROUP BY a.tag ORDER BY 1) AS joined;
SELECT md5(jsonb_agg(row ORDER BY row->>'tag')::text) FROM (
    SELECT jsonb_build_object('tag', tag, 'score', score, 'parts',
                              to_jsonb(regexp_split_to_array(tag, '[aeiou0]'))) AS row
    FROM event WHERE i % 7 = 0) AS objects;
SELECT md5(string_agg(ranked::text, ';' ORDER BY owner, place)) FROM (
    SELECT owner, rank() OVER (PARTITION BY owner ORDER BY score, tag) AS place, tag
    FROM event) AS ranked;
SELECT md5(string_agg(regexp_replace(tag, '([0-9])([a-f])', '\2\1', 'g'), '' ORDER BY i))
    FROM event WHERE i <= 50000;
SELECT count(*) FROM event WHERE to_tsvector('simple', tag || ' ' || body) @@ 'aaa'::tsquery;
SELECT sum(collatz(i)) FROM generate_series(1, 3000) AS i;
WITH RECURSIVE walk(n, path) AS (
    SELECT 1, ARRAY[1] UNION ALL
    SELECT n * 7 % 1009, path || n * 7 % 1009 FROM walk WHERE cardinality(path) < 1500)
    SELECT md5(string_agg(array_to_string(path, '-'), ',')) FROM walk;
DROP FUNCTION collatz;
