package offsetlog.spark.store;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;

/**
 * What one task fetches from a store before it needs it: the rest of the segment that it reads, and
 * the segments behind it. Used by the task's thread alone.
 *
 * <p>Invariant: what is fetched, or on its way, is at most {@link #PARTS} parts and {@link #BYTES},
 * and the part that is needed now.
 */
final class FetchAhead {
  static final int PARTS = 8;
  static final long BYTES = 4L * StoreFile.PART;

  private final Iterator<StoreFile> coming;

  /** The one that is read. */
  private StoreFile current;

  /** Those behind it of which something is fetched. */
  private final Deque<StoreFile> files = new ArrayDeque<>();

  private int parts;
  private long bytes;

  /** @param coming all segments of the task in the order in which they are read */
  FetchAhead(Iterator<StoreFile> coming) {
    this.coming = coming;
  }

  /** The next file of that name; those before it are not wanted any more. */
  StoreFile next(String name) {
    do {
      if (current != null) {
        current.close();
      }
      current = files.isEmpty() ? coming.next() : files.poll();
    } while (!current.name().equals(name));
    fill();
    return current;
  }

  /** Fetch as much as there is room for. */
  void fill() {
    boolean hasRoom = current == null || fill(current);
    for (Iterator<StoreFile> each = files.iterator(); hasRoom && each.hasNext(); ) {
      hasRoom = fill(each.next());
    }
    while (hasRoom && parts < PARTS && coming.hasNext()) {
      StoreFile file = coming.next();
      files.add(file);
      hasRoom = fill(file);
    }
  }

  /** Whether there was room for all that is known to be wanted of a file. */
  private boolean fill(StoreFile file) {
    for (int next = file.nextLength(); next > 0; next = file.nextLength()) {
      if (parts == PARTS || bytes + next > BYTES) {
        return false;
      }
      file.beginNext();
    }
    return true;
  }

  void took(int length) {
    parts++;
    bytes += length;
  }

  void gaveBack(int length) {
    parts--;
    bytes -= length;
  }

  void close() {
    if (current != null) {
      current.close();
    }
    while (!files.isEmpty()) {
      files.poll().close();
    }
  }
}
