# The service of tools/workloads/documents.py on Ruby, with a thread for each connection: JSON, zlib
# and base64.
#
# usage: documents.rb PORT
require 'json'
require 'socket'
require 'zlib'

CACHED_MAX = 5000
PREVIEW_BYTES = 1500
CACHE = {}
LOCK = Mutex.new

def keep(key, result)
  LOCK.synchronize do
    CACHE.delete(key)
    CACHE[key] = result
    CACHE.shift if CACHE.size > CACHED_MAX
  end
end

def packed(data)
  [Zlib.deflate(data, 1)].pack('m0')
end

def sort_orders(body)
  orders = JSON.parse(body)
  sums = Hash.new(0)
  orders.each { |order| sums[order['city']] += order['cents'] }
  orders.sort_by! { |order| [order['city'], -order['cents']] }
  [{ orders: orders.size, sums: sums }, packed(JSON.generate(orders))]
end

def store_file(body)
  document = JSON.parse(body)
  content = document['content'].unpack1('m0')
  preview = content.byteslice(0, PREVIEW_BYTES).force_encoding('ISO-8859-1').encode('UTF-8')
  [{ name: document['name'], bytes: content.bytesize, preview: preview }, packed(content)]
end

def answer(connection, status, text)
  connection.write("HTTP/1.1 #{status}\r\nContent-Type: application/json\r\n" \
                   "Content-Length: #{text.bytesize}\r\n\r\n", text)
end

def reply(connection, method, path, body)
  if method == 'GET'
    result = LOCK.synchronize { CACHE[path.split('/').last] }
    answer(connection, result ? '200 OK' : '404 Not Found', result || '{"error": "no such result"}')
  else
    key = Zlib.crc32(body).to_s(16)
    small, large = path == '/orders' ? sort_orders(body) : store_file(body)
    keep(key, JSON.generate(small))
    answer(connection, '200 OK', JSON.generate({ key: key, **small, packed: large }))
  end
end

def serve(connection)
  while (line = connection.gets("\r\n"))
    method, path = line.split
    length = 0
    while (header = connection.gets("\r\n")) && header != "\r\n"
      length = header[/\d+/].to_i if header.downcase.start_with?('content-length:')
    end
    reply(connection, method, path, connection.read(length))
  end
rescue Errno::ECONNRESET, Errno::EPIPE
  nil
ensure
  connection.close
end

server = TCPServer.new('127.0.0.1', Integer(ARGV[0]))
trap('TERM') { exit!(0) }
loop { Thread.new(server.accept) { |connection| serve(connection) } }
