package offsetlog.spark.store;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.net.SocketTimeoutException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hadoop's client for one root, as the tasks of this process share it.
 *
 * <p>It may be set up for another place than fsspec is, or without rights, so it is never trusted:
 *
 * <ol>
 *   <li>Nobody waits for it longer than {@link #TIMEOUT} says.
 *   <li>After some failures in a row, or one for which a task waited that long, it is left alone for
 *       a while. One line in the log says so.
 *   <li>Its size and time of a file are not asked for, nor a listing: one request for each range.
 * </ol>
 */
final class StoreClient {
  /** A setting of Hadoop's configuration: how long a task waits for a range, such as {@code 30s}. */
  static final String TIMEOUT = "offsetlog.client.timeout";

  private static final long TIMEOUT_SECONDS = 30;
  private static final int FAILURES = 3;
  private static final long PAUSE_NANOS = TimeUnit.MINUTES.toNanos(10);
  private static final int MOST_CLIENTS = 16;
  private static final Logger LOG = LoggerFactory.getLogger(StoreClient.class);

  /** Its threads are as many as tasks fetch ranges at once, and end when they are idle. */
  private static final ExecutorService THREADS =
      Executors.newCachedThreadPool(
          run -> {
            Thread thread = new Thread(run, "offsetlog-fetch");
            thread.setDaemon(true);
            return thread;
          });

  private record Key(Path root, HadoopSettings settings) {}

  private static final Map<Key, StoreClient> CLIENTS =
      new LinkedHashMap<>(MOST_CLIENTS, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Key, StoreClient> eldest) {
          return size() > MOST_CLIENTS;
        }
      };

  private final Path root;
  private final Configuration configuration;
  private final long timeoutMillis;
  private int failures;
  private long pausedAt;

  private StoreClient(Path root, HadoopSettings settings) {
    this.root = root;
    configuration = settings.configuration();
    timeoutMillis =
        configuration.getTimeDuration(
            TIMEOUT, TimeUnit.SECONDS.toMillis(TIMEOUT_SECONDS), TimeUnit.MILLISECONDS);
  }

  /** The client for a root. Asks nothing. */
  static StoreClient of(Path root, HadoopSettings settings) {
    synchronized (CLIENTS) {
      return CLIENTS.computeIfAbsent(
          new Key(root, settings), key -> new StoreClient(root, settings));
    }
  }

  // --- whether it is asked --------------------------------------------------------------------

  synchronized boolean isUsable() {
    return failures < FAILURES || System.nanoTime() - pausedAt > PAUSE_NANOS;
  }

  /** What it read was what was planned. */
  synchronized void succeeded() {
    failures = 0;
  }

  synchronized void failed(Exception why) {
    boolean wasUsable = failures < FAILURES;
    failures = why instanceof SocketTimeoutException ? FAILURES : failures + 1;
    if (failures >= FAILURES) {
      pausedAt = System.nanoTime();
      if (wasUsable) {
        LOG.warn(
            "Python reads {} for the next {} minutes, since Hadoop's client failed: {}",
            root, TimeUnit.NANOSECONDS.toMinutes(PAUSE_NANOS), why.toString());
      }
    }
  }

  // --- asking it ------------------------------------------------------------------------------

  /** Begin to fetch bytes {@code [start, start + length)} of a file of that size. */
  Future<byte[]> fetch(String name, long size, long start, int length) {
    ClassLoader classes = configuration.getClassLoader();
    return THREADS.submit(
        () -> {
          Thread.currentThread().setContextClassLoader(classes);
          byte[] out = new byte[length];
          try (FSDataInputStream in = open(name, size)) {
            in.readFully(start, out, 0, length);
          }
          return out;
        });
  }

  /** Its size, and how it is read, save a client that knows them the request that it would make. */
  private FSDataInputStream open(String name, long size) throws Exception {
    return FileSystem.get(root.toUri(), configuration)
        .openFile(new Path(root, name))
        .opt("fs.option.openfile.length", Long.toString(size))
        .opt("fs.option.openfile.read.policy", "random")
        .build()
        .get();
  }

  /** What was fetched; whatever went wrong is an {@link IOException}. */
  byte[] await(Future<byte[]> fetched) throws IOException {
    try {
      return fetched.get(timeoutMillis, TimeUnit.MILLISECONDS);
    } catch (TimeoutException late) {
      fetched.cancel(true);
      throw new SocketTimeoutException("no answer within " + timeoutMillis + " ms");
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof VirtualMachineError error) {
        throw error;
      }
      throw new IOException(failed.getCause().toString(), failed);
    } catch (InterruptedException killed) {
      // The task ends; nobody is to read on in its place.
      Thread.currentThread().interrupt();
      throw new UncheckedIOException(new InterruptedIOException("the task was interrupted"));
    }
  }
}
