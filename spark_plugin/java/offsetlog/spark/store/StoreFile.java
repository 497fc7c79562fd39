package offsetlog.spark.store;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import offsetlog.segment.RandomAccess;

/**
 * A segment in a store, fetched in parts of some megabytes: as a whole if all of it is wanted or it
 * is one part, else its foot, and then what is expected. Used by one thread.
 *
 * <p>Invariants:
 *
 * <ol>
 *   <li>Its size is the plan's. A shorter file can't be read; what a longer one has behind is not
 *       seen, and does not matter: the sums say that all planned bytes are there.
 *   <li>Rows are read in ascending order: a part that was read to its end is let go. The last part
 *       has the foot, which is read first, and stays.
 * </ol>
 */
final class StoreFile implements RandomAccess {
  static final int PART = 8 << 20;

  private final class Part {
    final long start;
    final int length;
    Future<byte[]> fetched;

    Part(long start, long end) {
      this.start = start;
      length = (int) (end - start);
    }

    long end() {
      return start + length;
    }

    void begin() {
      fetched = client.fetch(name, size, start, length);
      ahead.took(length);
    }

    void letGo() {
      if (fetched != null) {
        fetched.cancel(true);
        fetched = null;
        ahead.gaveBack(length);
      }
    }
  }

  private final StoreClient client;
  private final FetchAhead ahead;
  private final String name;
  private final long size;

  /** Those that will be read, in the order in which they are fetched: the foot's is the first. */
  private final List<Part> parts = new ArrayList<>();

  /** @param name below the root */
  StoreFile(
      StoreClient client, FetchAhead ahead, String name, long size, int foot, boolean isWhole) {
    this.client = client;
    this.ahead = ahead;
    this.name = name;
    this.size = size;
    addParts(isWhole || size <= PART ? 0 : size - foot, size);
    parts.add(0, parts.remove(parts.size() - 1));
  }

  String name() {
    return name;
  }

  @Override
  public long size() {
    return size;
  }

  @Override
  public void expect(long start, long end) {
    for (long at = start; at < end; ) {
      Part part = partAt(at);
      long next = part == null ? Math.min(end, startBehind(at)) : part.end();
      if (part == null) {
        addParts(at, next);
      }
      at = next;
    }
    ahead.fill();
  }

  @Override
  public void read(long position, byte[] target, int length) throws IOException {
    long end = position + length;
    expect(position, end);
    for (long at = position; at < end; ) {
      Part part = partAt(at);
      if (part.fetched == null) {
        part.begin();
      }
      byte[] data = client.await(part.fetched);
      int some = (int) (Math.min(part.end(), end) - at);
      System.arraycopy(data, (int) (at - part.start), target, (int) (at - position), some);
      at += some;
      if (at == part.end() && at < size) {
        part.letGo();
        parts.remove(part);
      }
    }
    ahead.fill();
  }

  /** Of the part that is to be fetched next; 0 if there is none. */
  int nextLength() {
    Part next = next();
    return next == null ? 0 : next.length;
  }

  void beginNext() {
    next().begin();
  }

  @Override
  public void close() {
    parts.forEach(Part::letGo);
    parts.clear();
  }

  private Part next() {
    for (Part part : parts) {
      if (part.fetched == null) {
        return part;
      }
    }
    return null;
  }

  private void addParts(long start, long end) {
    long count = (end - start + PART - 1) / PART;
    for (long i = 0; i < count; i++) {
      parts.add(
          new Part(start + (end - start) * i / count, start + (end - start) * (i + 1) / count));
    }
  }

  private Part partAt(long position) {
    for (Part part : parts) {
      if (part.start <= position && position < part.end()) {
        return part;
      }
    }
    return null;
  }

  private long startBehind(long position) {
    return parts.stream()
        .mapToLong(part -> part.start)
        .filter(start -> start > position)
        .min()
        .orElse(Long.MAX_VALUE);
  }
}
