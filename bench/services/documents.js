// The service of tools/workloads/documents.py on Node.js: JSON, zlib and base64.
//
// usage: documents.js PORT
const http = require('http');
const zlib = require('zlib');

const CACHED_MAX = 5000;
const PREVIEW_BYTES = 1500;
const cache = new Map();

function keep(key, result) {
  cache.delete(key);
  cache.set(key, result);
  if (cache.size > CACHED_MAX) cache.delete(cache.keys().next().value);
}

function packed(data, then) {
  zlib.deflate(data, { level: 1 }, (error, result) => then(result.toString('base64')));
}

function sortOrders(body, then) {
  const orders = JSON.parse(body);
  const sums = {};
  for (const order of orders) sums[order.city] = (sums[order.city] || 0) + order.cents;
  orders.sort((a, b) => (a.city < b.city ? -1 : a.city > b.city ? 1 : b.cents - a.cents));
  packed(Buffer.from(JSON.stringify(orders)), large => then({ orders: orders.length, sums }, large));
}

function storeFile(body, then) {
  const { name, content } = JSON.parse(body);
  const bytes = Buffer.from(content, 'base64');
  const preview = bytes.toString('latin1', 0, PREVIEW_BYTES);
  packed(bytes, large => then({ name, bytes: bytes.length, preview }, large));
}

function answer(response, status, value) {
  const text = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': text.length });
  response.end(text);
}

let requests = 0;
http.createServer((request, response) => {
  if (request.method === 'GET') {
    const result = cache.get(request.url.split('/').pop());
    answer(response, result ? 200 : 404, result ? JSON.parse(result) : { error: 'no such result' });
    return;
  }
  const parts = [];
  request.on('data', part => parts.push(part));
  request.on('end', () => {
    const work = request.url === '/orders' ? sortOrders : storeFile;
    work(Buffer.concat(parts), (small, large) => {
      const key = String(requests++);
      keep(key, JSON.stringify(small));
      answer(response, 200, { key, ...small, packed: large });
    });
  });
}).listen(Number(process.argv[2]), '127.0.0.1');
