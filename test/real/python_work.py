"""Work for python3: trees, lists, expressions, compressors, pickles, big numbers, in threads."""

import bz2
import collections
import decimal
import hashlib
import json
import lzma
import pickle
import random
import re
import threading
import zlib


def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def work(seed):
    rng = random.Random(seed)
    tree = {}
    for i in range(40_000):
        node = tree
        for letter in f"{rng.randrange(1 << 30):x}":
            node = node.setdefault(letter, {})
        node["#"] = "x" * (i % 400)
        if i % 3000 == 2999:
            tree.pop(rng.choice(list(tree)))
    text = json.dumps(tree, sort_keys=True)
    lists = [list(range(rng.randrange(200))) for _ in range(20_000)]
    rng.shuffle(lists)
    del lists[::3]
    words = collections.Counter(re.findall(r"[a-f0-9]{2,}", text)).most_common(500)
    packed = [module.decompress(module.compress(text.encode()[:200_000]))
              for module in (zlib, bz2, lzma)]
    assert packed[0] == packed[1] == packed[2]
    grown = bytearray()
    for i in range(60_000):
        grown += str(i).encode()
    again = pickle.loads(pickle.dumps((tree, lists)))
    assert again == (tree, lists)
    decimal.getcontext().prec = 2000
    return digest(text, words, [sum(part) for part in lists], bytes(grown),
                  decimal.Decimal(seed + 2).sqrt(), hex(pow(seed + 3, 20_000)))


results = {}
threads = [threading.Thread(target=lambda n=n: results.update({n: work(n)})) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(results) == 4
print(digest(sorted(results.items())))
