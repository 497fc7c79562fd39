import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import offsetlog.segment.LocalFile;
import offsetlog.segment.SegmentReader;
import offsetlog.segment.Unreadable;

/**
 * The floor of our source: segments read, every sum checked, each page decompressed and its rows
 * stepped over, with as many threads as Spark has cores, and without Spark.
 *
 * <p>A line "segment base end records size footBytes footSum path" adds a segment. A line "pass
 * columns" reads them all, and is answered by "rows nanoseconds", or by why one is unreadable.
 */
final class Segments {
  private record Segment(Path path, SegmentReader.Ref ref) {}

  public static void main(String[] arguments) throws Exception {
    int threads = Integer.parseInt(arguments[0]);
    List<Segment> segments = new ArrayList<>();
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      if (line.startsWith("segment ")) {
        segments.add(segment(line.split(" ", 8)));
      } else {
        System.out.println(pass(segments, Set.of(line.split(" ")[1].split(",")), threads, pool));
      }
    }
    pool.shutdown();
  }

  private static Segment segment(String[] w) {
    return new Segment(
        Path.of(w[7]),
        new SegmentReader.Ref(
            w[7], Long.parseLong(w[1]), Long.parseLong(w[2]), Long.parseLong(w[3]),
            Long.parseLong(w[4]), Integer.parseInt(w[5]), w[6]));
  }

  private static String pass(
      List<Segment> segments, Set<String> columns, int threads, ExecutorService pool)
      throws Exception {
    long began = System.nanoTime();
    AtomicInteger next = new AtomicInteger();
    List<Callable<Long>> readers = new ArrayList<>();
    for (int number = 0; number < threads; number++) {
      readers.add(() -> rows(segments, columns, next));
    }
    long rows = 0;
    for (Future<Long> each : pool.invokeAll(readers)) {
      try {
        rows += each.get();
      } catch (java.util.concurrent.ExecutionException error) {
        return "unreadable " + error.getCause().getMessage();
      }
    }
    return rows + " " + (System.nanoTime() - began);
  }

  /** What one thread reads: the next segment that no other has begun, until there is none. */
  private static long rows(List<Segment> segments, Set<String> columns, AtomicInteger next)
      throws IOException, Unreadable {
    long rows = 0;
    try (SegmentReader reader = new SegmentReader(columns)) {
      for (int at = next.getAndIncrement(); at < segments.size(); at = next.getAndIncrement()) {
        SegmentReader.Ref ref = segments.get(at).ref();
        reader.open(new LocalFile(segments.get(at).path()), ref, ref.base(), ref.end());
        for (int step = reader.step(); step > 0; step = reader.step()) {
          rows += step;
        }
      }
    }
    return rows;
  }
}
