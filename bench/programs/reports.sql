-- Queries of pgbench's tables: sorts, joins, aggregates, jsonb, regular expressions, window
-- functions and recursion. Their answers depend on the tables only.
SET work_mem = '32MB';
SELECT md5(string_agg(filler || abalance, ',' ORDER BY aid % 977, aid))
    FROM pgbench_accounts WHERE aid <= 15000;
SELECT count(*), sum(total) FROM (
    SELECT a.aid % 4001 AS owner, sum(b.abalance) AS total
    FROM pgbench_accounts a JOIN pgbench_accounts b ON b.aid = a.aid * 3 % 30011
    WHERE a.aid <= 30000 GROUP BY 1) AS joined;
SELECT md5(jsonb_agg(row ORDER BY row->>'tag')::text) FROM (
    SELECT jsonb_build_object('tag', md5(aid::text), 'balance', abalance, 'parts',
                              to_jsonb(regexp_split_to_array(md5(aid::text), '[aeiou0]'))) AS row
    FROM pgbench_accounts WHERE aid <= 3000) AS objects;
SELECT md5(string_agg(ranked::text, ';' ORDER BY aid)) FROM (
    SELECT aid, rank() OVER (PARTITION BY aid % 97 ORDER BY abalance, aid) AS place
    FROM pgbench_accounts WHERE aid <= 20000) AS ranked;
WITH RECURSIVE walk(n, path) AS (
    SELECT 1, ARRAY[1] UNION ALL
    SELECT n * 7 % 1009, path || n * 7 % 1009 FROM walk WHERE cardinality(path) < 400)
    SELECT md5(string_agg(array_to_string(path, '-'), ',')) FROM walk;
