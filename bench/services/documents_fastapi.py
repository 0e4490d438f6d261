"""The service of tools/workloads/documents.py on FastAPI and uvicorn.

usage: PYTHONPATH=tools/workloads documents_fastapi.py PORT
"""

import json
import sys
import zlib

import fastapi
import uvicorn

import documents

app = fastapi.FastAPI()


async def stored(request, work):
    body = await request.body()
    key = f"{zlib.crc32(body):08x}"
    small, large = work(body)
    documents.CACHE.put(key, json.dumps(small))
    return {"key": key, **small, "packed": large}


@app.post("/orders")
async def orders(request: fastapi.Request):
    return await stored(request, documents.sort_orders)


@app.post("/files")
async def files(request: fastapi.Request):
    return await stored(request, documents.store_file)


@app.get("/results/{key}")
def results(key: str):
    found = documents.CACHE.get(key)
    if found is None:
        raise fastapi.HTTPException(status_code=404)
    return json.loads(found)


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
