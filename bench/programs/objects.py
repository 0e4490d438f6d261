"""A Python program of many small objects: parse, index, sort, join, drop.

usage: objects.py [SIZE]   about 10 ms each; default 60

Run it with PYTHONMALLOC=malloc: CPython's own arenas would stand between it and the allocator.
The output depends on the argument only.
"""

import hashlib
import json
import sys


def records(count, x=12345):
    for number in range(count):
        x = (x * 1103515245 + 12345) % 2 ** 31
        yield {"id": number, "name": f"name {x % 5003}", "value": x / 7,
               "tags": [f"t{x % k}" for k in (7, 31, 101)]}


def one_round(count):
    lines = [json.dumps(record) for record in records(count)]
    parsed = [json.loads(line) for line in lines]
    by_tag = {}
    for record in parsed:
        for tag in record["tags"]:
            by_tag.setdefault(tag, []).append((record["value"], record["name"]))
    best = {tag: sorted(entries, reverse=True)[:10] for tag, entries in by_tag.items()}
    text = "\n".join(f"{tag}: {', '.join(name for _, name in entries)}"
                     for tag, entries in sorted(best.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def main(arguments):
    size = int(arguments[0]) if arguments else 60
    kept = []
    while size > 0:
        kept.append(one_round(900 * min(size, 20)))
        size -= 20
    print(hashlib.sha256("".join(kept).encode()).hexdigest())


main(sys.argv[1:])
