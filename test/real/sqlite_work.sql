-- Work for sqlite3: a million rows made, joined, sorted, changed, deleted and checked. It prints
-- counts, sums and digests that the allocator must not change.

.bail on
PRAGMA journal_mode = WAL;
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;

CREATE TABLE item (id INTEGER PRIMARY KEY, owner INTEGER, price REAL, name TEXT, body BLOB);
INSERT INTO item
    WITH RECURSIVE counter(n) AS (
        VALUES (1) UNION ALL SELECT n + 1 FROM counter WHERE n < 1000000)
    SELECT n, n * 7919 % 10007, (n * 104729 % 1000003) / 100.0,
           printf('item-%x-%s', n * 2654435761 % 4294967296,
                  substr('abcdefghijklmnopqrst', n % 20)),
           zeroblob(n % 40)
    FROM counter;
CREATE INDEX item_name ON item (name);
CREATE INDEX item_owner ON item (owner, price DESC);

SELECT count(*), sum(id), round(sum(price), 2), sum(length(name)), sum(length(body)) FROM item;
SELECT owner, count(*), round(max(price), 2), group_concat(substr(name, 6, 4), '')
    FROM item WHERE owner % 1000 = 7 GROUP BY owner ORDER BY owner LIMIT 20;
SELECT count(DISTINCT substr(name, 6, 5)), min(name), max(name) FROM item;
SELECT sum(place * (id % 97)) FROM (
    SELECT id, row_number() OVER (PARTITION BY owner % 100 ORDER BY price, id) AS place
    FROM item WHERE id % 5 = 0);
SELECT count(*), sum(a.id + b.id) FROM item a JOIN item b ON b.owner = a.id % 10007
    WHERE a.id <= 2000 AND b.price < 1000.0;
SELECT sum(json_extract(json_object('id', id, 'tags', json_array(name, price)), '$.tags[1]') > 5000)
    FROM item WHERE id % 10 = 0;

BEGIN;
UPDATE item SET body = CAST(name || name || name AS BLOB), price = price * 2 WHERE id % 3 = 0;
DELETE FROM item WHERE id % 7 = 0;
SAVEPOINT aside;
DELETE FROM item WHERE id % 2 = 0;
ROLLBACK TO aside;
COMMIT;

CREATE VIRTUAL TABLE word USING fts5(name);
INSERT INTO word SELECT replace(name, '-', ' ') FROM item WHERE id <= 50000;
SELECT count(*) FROM word WHERE word MATCH 'b*';

SELECT count(*), sum(id), round(sum(price), 2), sum(length(body)) FROM item;
SELECT hex(sha3(group_concat(name || id)))
    FROM (SELECT name, id FROM item ORDER BY name LIMIT 200000);
VACUUM;
PRAGMA integrity_check;
.sha3sum item
