// Channels in a selector before they are connected, and the machine's own HTTP client and server.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

public class Channels {
    static final long MILLIS = 30_000;

    static void select(ServerSocketChannel listener) throws Exception {
        InetSocketAddress at = (InetSocketAddress) listener.getLocalAddress();
        try (Selector selector = Selector.open(); SocketChannel client = SocketChannel.open()) {
            client.configureBlocking(false);
            int wanted = SelectionKey.OP_CONNECT | SelectionKey.OP_READ;
            SelectionKey key = client.register(selector, wanted);
            selector.selectNow();
            if (!client.connect(at)) {
                selector.select(MILLIS);
                System.out.println(key.isConnectable() ? "selected" : "not selected");
            }
            System.out.println(client.finishConnect() ? "finished" : "not finished");
            System.out.println(at.equals(client.getRemoteAddress()) ? "peer" : "another peer");
            key.interestOps(SelectionKey.OP_READ);
            try (SocketChannel accepted = listener.accept()) {
                accepted.write(ByteBuffer.wrap("hello".getBytes()));
                selector.select(MILLIS);
                System.out.println("heard " + client.read(ByteBuffer.allocate(9)));
            }
        }
    }

    static void ask() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            byte[] heard = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, heard.length);
            exchange.getResponseBody().write(heard);
            exchange.close();
        });
        server.start();
        byte[] body = new byte[500_000];
        new Random(1).nextBytes(body);
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        URI uri = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/");
        var answers = new ArrayList<CompletableFuture<HttpResponse<byte[]>>>();
        for (int number = 0; number < 8; number++) {
            var asked = HttpRequest.newBuilder(uri);
            asked.POST(HttpRequest.BodyPublishers.ofByteArray(body));
            answers.add(client.sendAsync(asked.build(), HttpResponse.BodyHandlers.ofByteArray()));
        }
        int same = 0;
        for (var answer : answers) {
            boolean whole = Arrays.equals(answer.get(MILLIS, TimeUnit.MILLISECONDS).body(), body);
            same += whole ? 1 : 0;
        }
        System.out.println(same + " answers");
        server.stop(0);
    }

    public static void main(String[] words) throws Exception {
        try (ServerSocketChannel listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress("127.0.0.1", 0));
            select(listener);
            select(listener);
        }
        ask();
        System.exit(0);
    }
}
