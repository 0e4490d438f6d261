-- A shop's orders in memory: tables filled from a fixed pseudo-random sequence, indexed, joined,
-- aggregated, updated and thinned out. The output depends on nothing but this file.
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT, note TEXT);
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer INTEGER, article TEXT, cents INTEGER);

WITH RECURSIVE sequence (n, x) AS (
    VALUES (1, 12345)
    UNION ALL SELECT n + 1, (x * 1103515245 + 12345) % 2147483648 FROM sequence WHERE n < 40000)
INSERT INTO customer
    SELECT n, printf('customer %06d', x % 1000000), printf('city %d', x % 97),
           substr('lorem ipsum dolor sit amet consectetur adipiscing elit sed do', 1, x % 61)
    FROM sequence;

WITH RECURSIVE sequence (n, x) AS (
    VALUES (1, 54321)
    UNION ALL SELECT n + 1, (x * 1103515245 + 12345) % 2147483648 FROM sequence WHERE n < 300000)
INSERT INTO purchase
    SELECT n, x % 40000 + 1, printf('article %d', x / 7 % 5000), x % 99999 FROM sequence;

CREATE INDEX purchase_customer ON purchase (customer);
CREATE INDEX purchase_article ON purchase (article, cents);
CREATE INDEX customer_name ON customer (name COLLATE NOCASE);

SELECT city, count(*), sum(cents), length(group_concat(DISTINCT name))
    FROM purchase JOIN customer ON purchase.customer = customer.id
    GROUP BY city ORDER BY sum(cents) DESC LIMIT 5;
SELECT article, count(DISTINCT customer), max(cents) FROM purchase GROUP BY article
    ORDER BY 2 DESC, 1 LIMIT 5;
SELECT length(group_concat(upper(name) || '|' || replace(note, 'o', '00') || '|' || city, '; '))
    FROM customer;
UPDATE customer SET note = note || ' ' || name WHERE id % 3 = 0;
DELETE FROM purchase WHERE cents % 5 = 0;
SELECT count(*), sum(cents), sum(length(article)) FROM purchase;
SELECT count(*), sum(length(note)) FROM customer;
