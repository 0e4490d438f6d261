// Work for node: JSON, Buffers, streams through zlib, and worker threads that hand memory over.
// The program prints one digest a part.

'use strict';

const crypto = require('crypto');
const zlib = require('zlib');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

function sha256(...parts) {
  const hash = crypto.createHash('sha256');
  for (const part of parts) {
    hash.update(part);
  }
  return hash.digest('hex');
}

function generator(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % limit;
  };
}

// A tree of objects, arrays and strings.
function tree(random, depth) {
  if (depth === 0) {
    return random(2) ? 'x'.repeat(random(200)) + random(1000) : random(1e6) / 7;
  }
  const node = random(2) ? [] : {};
  for (let i = 0; i < 6; i++) {
    node[Array.isArray(node) ? i : 'key' + random(1000)] = tree(random, depth - 1);
  }
  return node;
}

function json(seed) {
  const random = generator(seed);
  const hash = crypto.createHash('sha256');
  for (let i = 0; i < 12; i++) {
    const text = JSON.stringify(tree(random, 5));
    hash.update(JSON.stringify(JSON.parse(text)) === text ? text : 'differs');
  }
  return hash.digest('hex');
}

// Buffers of all sizes are made and dropped; their memory is from malloc, not the collector's.
function buffers(seed) {
  const random = generator(seed);
  const live = new Array(500).fill(Buffer.alloc(0));
  const hash = crypto.createHash('sha256');
  for (let i = 0; i < 60000; i++) {
    const size = i % 1000 === 0 ? 1 << (10 + random(13)) : random(20000);
    const slot = random(live.length);
    const old = live[slot];
    if (old.length > 0 && (old[0] !== slot % 251 || old[old.length - 1] !== slot % 251)) {
      throw new Error(`buffer ${slot} was overwritten`);
    }
    live[slot] = Buffer.alloc(size, slot % 251);
    if (i % 500 === 0) {
      hash.update(Buffer.concat(live.slice(0, 50)));
    }
  }
  return hash.digest('hex');
}

function compression(seed) {
  const text = Buffer.from(JSON.stringify(tree(generator(seed), 7)));
  const hash = crypto.createHash('sha256');
  for (const [pack, unpack] of [[zlib.gzipSync, zlib.gunzipSync],
                                [zlib.deflateRawSync, zlib.inflateRawSync],
                                [zlib.brotliCompressSync, zlib.brotliDecompressSync]]) {
    const options = pack === zlib.brotliCompressSync
      ? { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 5 } } : { level: 6 };
    const packed = pack(text, options);
    if (!unpack(packed).equals(text)) {
      throw new Error('compression lost something');
    }
    hash.update(packed);
  }
  return hash.digest('hex');
}

if (isMainThread) {
  console.log('json', json(1));
  console.log('buffers', buffers(2));
  console.log('compression', compression(3));

  // Workers: each has a heap of its own; array buffers are exchanged without a copy, so a thread
  // frees memory that another one allocated.
  const results = [];
  let left = 6;
  for (let n = 0; n < 6; n++) {
    const worker = new Worker(__filename, { workerData: n });
    const parts = [];
    worker.on('message', ({ done, bytes }) => {
      if (done) {
        results[n] = done + sha256(...parts);
        return;
      }
      parts.push(sha256(bytes));
      worker.postMessage(bytes, [bytes.buffer]);
    });
    worker.on('error', (error) => { throw error; });
    worker.on('exit', (code) => {
      if (code !== 0) {
        throw new Error(`worker ${n} ended with ${code}`);
      }
      if (--left === 0) {
        console.log('workers', sha256(results.join()));
      }
    });
  }
} else {
  const random = generator(100 + workerData);
  let rounds = 0;
  const send = () => {
    const bytes = new Uint8Array(1000 + random(300000)).fill(random(256));
    parentPort.postMessage({ bytes }, [bytes.buffer]);
  };
  parentPort.on('message', (bytes) => {
    if (++rounds < 100) {
      send();
      return;
    }
    parentPort.postMessage({ done: json(workerData) + bytes.length });
    parentPort.close();
  });
  send();
}
