// A program for Node: records as JSON are packed by zlib, hashed, cut and joined as Buffers, and
// kept in a cache that drops the oldest. V8's own heap does not use malloc, but Buffers, zlib, the
// hashes, the parser and the compiler of the machine code do.
//
// usage: buffers.js [SIZE]   about 10 ms each; default 60
//
// The output depends on the argument only.
'use strict';

const crypto = require('crypto');
const zlib = require('zlib');

let state = 12345;

function random(limit) {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return (state >>> 8) % limit;
}

function records(count) {
  const made = [];
  for (let id = 0; id < count; id++) {
    made.push({ id, name: `name ${random(5003)}`, value: random(1e6) / 7,
      tags: [7, 31, 101].map((limit) => `t${random(limit)}`) });
  }
  return made;
}

function sha256(...parts) {
  const hash = crypto.createHash('sha256');
  for (const part of parts) {
    hash.update(part);
  }
  return hash.digest();
}

// Cuts a buffer into copies of all sizes, and joins them in another order.
function shuffled(buffer) {
  const parts = [];
  for (let at = 0; at < buffer.length;) {
    const size = 1 + random(random(8) ? 2000 : 20000);
    parts.push(Buffer.from(buffer.subarray(at, at + size)));
    at += size;
  }
  parts.sort(Buffer.compare);
  return Buffer.concat(parts);
}

function oneRound(cache, round) {
  const text = Buffer.from(JSON.stringify(records(150)));
  const packed = zlib.deflateSync(text, { level: 1 });
  const read = JSON.parse(zlib.inflateSync(packed).toString('latin1'));
  const page = Buffer.alloc(5000 + random(60000), `${read.length}`);
  for (let number = 0; number < 40; number++) {
    const name = `${round} ${number}`;
    cache.set(name, Buffer.concat([packed.subarray(0, random(packed.length)), sha256(name)]));
  }
  cache.set(`page ${round}`, page);
  while (cache.size > 1500) {
    cache.delete(cache.keys().next().value);
  }
  return sha256(shuffled(text), page, String(read[random(read.length)].name));
}

const cache = new Map();
const size = Number(process.argv[2] || 60);
let digest = Buffer.alloc(0);
for (let round = 0; round < size * 7; round++) {
  digest = sha256(digest, oneRound(cache, round));
}
console.log(digest.toString('hex'), cache.size);
