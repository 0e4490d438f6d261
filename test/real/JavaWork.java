// Work for a JVM: threads, collections, the compilers and collectors behind them, and memory taken
// from malloc by direct buffers and by zlib. The program prints one digest a part.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.*;
import java.util.zip.*;

public class JavaWork {
    static String sha256(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    static String sha256(String text) throws Exception {
        return sha256(text.getBytes(StandardCharsets.UTF_8));
    }

    static String collections(int seed) throws Exception {
        Random random = new Random(seed);
        Map<String, List<Integer>> map = new HashMap<>();
        for (int i = 0; i < 150_000; i++) {
            map.computeIfAbsent("key" + random.nextInt(5_000), key -> new ArrayList<>()).add(i);
            if (i % 5 == 0) {
                map.remove("key" + random.nextInt(5_000));
            }
        }
        return sha256(new TreeMap<>(map).toString());
    }

    /** Direct buffers are memory from malloc; each is checked for foreign writes. */
    static String directBuffers(int seed) throws Exception {
        Random random = new Random(seed);
        ByteBuffer[] live = new ByteBuffer[64];
        long sum = 0;
        for (int i = 0; i < 3_000; i++) {
            int slot = random.nextInt(live.length);
            if (live[slot] != null) {
                for (int at = 0; at < live[slot].capacity(); at += 64) {
                    if (live[slot].get(at) != (byte) slot) {
                        throw new IllegalStateException("buffer " + slot + " was overwritten");
                    }
                }
            }
            ByteBuffer fresh = ByteBuffer.allocateDirect(1 + random.nextInt(40_000));
            while (fresh.hasRemaining()) {
                fresh.put((byte) slot);
            }
            live[slot] = fresh;
            sum = sum * 31 + fresh.capacity();
        }
        return Long.toHexString(sum);
    }

    /** Deflater and Inflater keep their state in memory from malloc. */
    static String compression(int seed) throws Exception {
        Random random = new Random(seed);
        StringBuilder digests = new StringBuilder();
        for (int i = 0; i < 60; i++) {
            byte[] data = random.ints(20_000, 'a', 'f').mapToObj(Integer::toString)
                .collect(Collectors.joining()).getBytes(StandardCharsets.UTF_8);
            byte[] packed = new byte[data.length];
            Deflater deflater = new Deflater(1 + i % 9);
            deflater.setInput(data);
            deflater.finish();
            int length = deflater.deflate(packed);
            deflater.end();
            byte[] again = new byte[data.length];
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, length);
            int restored = inflater.inflate(again);
            inflater.end();
            if (restored != data.length || !Arrays.equals(data, again)) {
                throw new IllegalStateException("compression lost something");
            }
            digests.append(sha256(Arrays.copyOf(packed, length)));
        }
        return sha256(digests.toString());
    }

    /** Many threads in turn: each has a stack, thread-local allocation buffers, handles. */
    static String shortThreads() throws Exception {
        AtomicLong sum = new AtomicLong();
        for (int round = 0; round < 50; round++) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                int n = round * 20 + i;
                threads.add(new Thread(() -> sum.addAndGet(
                    IntStream.range(0, n).map(k -> Integer.toString(k).length()).sum())));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
        }
        return Long.toString(sum.get());
    }

    static String inParallel(Task task) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        try {
            List<Future<String>> parts = new ArrayList<>();
            for (int n = 0; n < 8; n++) {
                int seed = n;
                parts.add(pool.submit(() -> task.run(seed)));
            }
            StringBuilder results = new StringBuilder();
            for (Future<String> part : parts) {
                results.append(part.get());
            }
            return sha256(results.toString());
        } finally {
            pool.shutdownNow();
        }
    }

    interface Task {
        String run(int seed) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("collections " + inParallel(JavaWork::collections));
        System.out.println("buffers " + inParallel(JavaWork::directBuffers));
        System.out.println("compression " + inParallel(JavaWork::compression));
        System.out.println("threads " + shortThreads());
        System.out.println("streams " + LongStream.range(0, 2_000_000).parallel()
            .map(n -> Long.reverse(n * 0x9E3779B97F4A7C15L) >>> 40).sum());
    }
}
