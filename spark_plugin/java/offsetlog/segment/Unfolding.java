package offsetlog.segment;

/**
 * What the wanted columns of a row group come to, as the headers of their pages say: judged before
 * memory is taken for any of it.
 *
 * <p>Invariants: no more is unfolded than Python would unfold ({@code MAX_ROW_GROUP_BYTES} and {@code
 * UNFOLDS_TO} of offsetlog/format/segments.py), and no more is held at once than this part of the
 * heap: Python, which has memory of its own, reads what takes more.
 */
final class Unfolding {
  private static final long MAX_BYTES = 1088L << 20;
  private static final int UNFOLDS_TO = 16;
  private static final int LEAST_VALUE_BYTES = 4;
  private static final int PART_OF_HEAP = 3;

  private final long most;
  private final long mostHeld = Runtime.getRuntime().maxMemory() / PART_OF_HEAP;
  private long bytes;
  private long values;
  private long held;

  /** Of a segment of so many bytes. */
  Unfolding(long size) {
    most = Math.max(MAX_BYTES, UNFOLDS_TO * size);
  }

  /** A page, once it is decompressed. */
  void add(int bytes, int values) throws Unreadable {
    this.bytes += bytes;
    this.values += values;
    if (Math.max(this.bytes, LEAST_VALUE_BYTES * this.values) > most) {
      throw new Unreadable("it would unfold to very much");
    }
  }

  /** What is in memory together with all else that was held. */
  void hold(long bytes) throws Unreadable {
    held += bytes;
    if (held > mostHeld) {
      throw new Unreadable("it takes more memory than a task has here");
    }
  }
}
