"""The service of tools/workloads/documents.py with Arrow's tables: group-by, sorting, Parquet. Set
ARROW_DEFAULT_MEMORY_POOL=system: otherwise Arrow brings an allocator of its own.

usage: PYTHONPATH=tools/workloads documents_arrow.py PORT
"""

import base64
import json
import sys

import pyarrow
import pyarrow.compute
import pyarrow.parquet

import documents

COPIES = 20  # of the rows of a request, so that most of the memory is Arrow's


def as_parquet(table):
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd", compression_level=1)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def group_orders(body):
    table = pyarrow.Table.from_pylist(json.loads(body))
    large = pyarrow.concat_tables([table] * COPIES).combine_chunks()
    sums = large.group_by("city").aggregate([("cents", "sum")]).to_pylist()
    large = large.sort_by([("city", "ascending"), ("cents", "descending")])
    return {"orders": table.num_rows, "sums": sums[:20]}, as_parquet(large)


def split_file(body):
    document = json.loads(body)
    words = pyarrow.compute.split_pattern(
        pyarrow.array([base64.b64decode(document["content"]).decode("latin-1")]), " ").flatten()
    counts = words.value_counts()
    table = pyarrow.table({"word": counts.field("values"), "count": counts.field("counts")})
    return {"name": document["name"], "words": len(words)}, as_parquet(table)


class Handler(documents.Handler):
    work = {"/orders": group_orders, "/files": split_file}


with documents.Server(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    server.serve_forever()
