/* A service that stores what it receives: HTTP with a pool of threads, direct buffers, Deflater,
 * Inflater and base64, whose memory is outside Java's own heap.
 *
 * usage: java Documents PORT */
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.zip.CRC32;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public final class Documents {
    private static final int CACHED_MAX = 2000;
    private static final int THREADS = 24;
    private static final int CHUNK_BYTES = 16 << 10;

    /* The compressed beginnings of the last documents, outside Java's heap. */
    private static final Map<String, ByteBuffer> CACHE =
        Collections.synchronizedMap(new LinkedHashMap<>() {
            @Override
            protected boolean removeEldestEntry(Map.Entry<String, ByteBuffer> eldest) {
                return size() > CACHED_MAX;
            }
        });

    private static byte[] deflate(ByteBuffer input) {
        Deflater deflater = new Deflater(1);
        deflater.setInput(input);
        deflater.finish();
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        byte[] chunk = new byte[CHUNK_BYTES];
        while (!deflater.finished())
            output.write(chunk, 0, deflater.deflate(chunk));
        deflater.end();
        return output.toByteArray();
    }

    private static long inflatedBytes(byte[] packed) throws DataFormatException {
        Inflater inflater = new Inflater();
        inflater.setInput(packed);
        byte[] chunk = new byte[CHUNK_BYTES];
        while (!inflater.finished())
            inflater.inflate(chunk);
        long bytes = inflater.getBytesWritten();
        inflater.end();
        return bytes;
    }

    private static ByteBuffer direct(byte[] bytes, int length) {
        ByteBuffer buffer = ByteBuffer.allocateDirect(length);
        buffer.put(bytes, 0, length).flip();
        return buffer;
    }

    private static String post(byte[] body) throws DataFormatException {
        byte[] packed = deflate(direct(body, body.length));
        if (inflatedBytes(packed) != body.length)
            throw new DataFormatException("the length differs");
        CRC32 crc = new CRC32();
        crc.update(body);
        String key = Long.toHexString(crc.getValue());
        CACHE.put(key, direct(packed, Math.min(packed.length, 1500)));
        return "{\"key\": \"" + key + "\", \"packed\": \"" +
            Base64.getEncoder().encodeToString(packed) + "\"}";
    }

    private static void handle(HttpExchange exchange) throws IOException {
        int status = 200;
        String text;
        try {
            byte[] body = exchange.getRequestBody().readAllBytes();
            String path = exchange.getRequestURI().getPath();
            ByteBuffer found = CACHE.get(path.substring(path.lastIndexOf('/') + 1));
            if (exchange.getRequestMethod().equals("POST")) {
                text = post(body);
            } else {
                status = found == null ? 404 : 200;
                text = "{\"bytes\": " + (found == null ? 0 : found.remaining()) + "}";
            }
        } catch (DataFormatException error) {
            status = 500;
            text = "{}";
        }
        byte[] answer = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, answer.length);
        exchange.getResponseBody().write(answer);
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        /* HttpServer would never answer the request of a thread that ended for lack of memory. */
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        InetSocketAddress address =
            new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        HttpServer server = HttpServer.create(address, 128);
        server.createContext("/", Documents::handle);
        server.setExecutor(Executors.newFixedThreadPool(THREADS));
        server.start();
    }
}
