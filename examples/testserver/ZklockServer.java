import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A ZooKeeper server for tests, as Curator's TestingServer is: a process of "zklock serve". */
public final class ZklockServer implements AutoCloseable {
    private final Process process;
    private final String connectString;
    private final URI control;

    /** Starts a server on a free port. The options are those of zklock serve, such as "--tick", "200ms". */
    public ZklockServer(String... options) throws IOException {
        List<String> command = new ArrayList<>(List.of("zklock", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"));
        command.addAll(List.of(options));
        process = new ProcessBuilder(command).start();
        BufferedReader err = new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8));
        URI at = null;
        StringBuilder said = new StringBuilder();
        for (String line; at == null && (line = err.readLine()) != null; said.append(line).append('\n')) {
            if (line.startsWith("zklock: control at ")) {
                at = URI.create(line.substring("zklock: control at ".length()));
            }
        }
        connectString = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
        if (at == null || connectString == null) {
            process.destroy();
            throw new IOException("zklock serve did not start: " + said);
        }
        control = at;
        Thread drain = new Thread(() -> err.lines().forEach(System.err::println)); // a full pipe would stop the server
        drain.setDaemon(true);
        drain.start();
    }

    public String getConnectString() {
        return connectString;
    }

    /** Closes all connections and the port; nodes and sessions stay. */
    public void stop() throws IOException {
        call("POST", "members/1/stop", "");
    }

    public void restart() throws IOException {
        call("POST", "members/1/start", "");
    }

    /** Ends a session now, as if its timeout had passed. */
    public void expire(long session) throws IOException {
        call("DELETE", "sessions/0x" + Long.toHexString(session), "");
    }

    /** Ends all sessions and deletes all nodes, for the next test. */
    public void reset() throws IOException {
        call("POST", "reset", "");
        call("DELETE", "faults", "");
    }

    /** Injects a fault, such as After(create).Once().DropReply().Close(). */
    public void inject(String fault) throws IOException {
        call("POST", "faults", fault);
    }

    private void call(String method, String path, String body) throws IOException {
        HttpURLConnection c = (HttpURLConnection) control.resolve("/" + path).toURL().openConnection();
        c.setRequestMethod(method);
        if (!body.isEmpty()) {
            c.setDoOutput(true);
            try (OutputStream out = c.getOutputStream()) {
                out.write(body.getBytes(StandardCharsets.UTF_8));
            }
        }
        if (c.getResponseCode() / 100 != 2) {
            String why = c.getErrorStream() == null ? "" : new String(c.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
            throw new IOException(method + " " + path + ": " + c.getResponseCode() + " " + why);
        }
    }

    @Override
    public void close() {
        process.destroy();
        try {
            process.waitFor(10, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
