# Threads that take turns under the interpreter's lock: each replaces strings of one live set, and
# the collector frees what the others made.
#
# usage: turns.rb [SIZE]   about 20 ms each; default 100
#
# 8 threads; 32 MiB live. The output depends on the argument only.
THREADS = 8
LIVE = 40_000
LARGEST = 1600

size = (ARGV[0] || 100).to_i
live = Array.new(LIVE)
threads = Array.new(THREADS) do |seed|
  Thread.new do
    random = Random.new(seed)
    (1500 * size).times { live[random.rand(LIVE)] = "x" * (24 + random.rand(LARGEST)) }
  end
end
threads.each(&:join)
puts format("%x", live.size)
