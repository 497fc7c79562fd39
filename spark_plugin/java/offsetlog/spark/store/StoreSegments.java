package offsetlog.spark.store;

import java.util.Iterator;
import offsetlog.segment.RandomAccess;
import org.apache.hadoop.fs.Path;

/**
 * The segments of one task below a root in a store, through Hadoop's client.
 *
 * <p>Invariant: a task whose client failed once does not use it again.
 */
public final class StoreSegments implements AutoCloseable {
  /**
   * A segment that will be read.
   *
   * @param name below the root
   * @param isWhole whether all of its records are wanted
   */
  public record Wanted(String name, long size, int foot, boolean isWhole) {}

  private final StoreClient client;
  private final FetchAhead ahead;
  private boolean hasFailed;

  /** @param coming all that will be opened, in order; some may be passed over */
  public StoreSegments(String root, HadoopSettings settings, Iterator<Wanted> coming) {
    client = StoreClient.of(new Path(root), settings);
    ahead =
        new FetchAhead(
            new Iterator<>() {
              @Override
              public boolean hasNext() {
                return coming.hasNext();
              }

              @Override
              public StoreFile next() {
                return file(coming.next());
              }
            });
  }

  private StoreFile file(Wanted it) {
    return new StoreFile(client, ahead, it.name, it.size, it.foot, it.isWhole);
  }

  public boolean isUsable() {
    return !hasFailed && client.isUsable();
  }

  public RandomAccess open(String name) {
    return ahead.next(name);
  }

  /** What was read was what was planned. */
  public void succeeded() {
    client.succeeded();
  }

  public void failed(Exception why) {
    hasFailed = true;
    client.failed(why);
    ahead.close();
  }

  @Override
  public void close() {
    ahead.close();
  }
}
