package offsetlog.segment;

/**
 * Keys or values: where each begins in the page. Nothing is copied.
 *
 * <p>Invariants: for each row that is not null {@code bytes} has its four bytes of length before its
 * start, and all of its bytes from there on.
 */
public final class BytesColumn extends Column {
  /** Of a row that is null. */
  public static final int NULL = -1;

  public byte[] bytes;
  public int[] starts = new int[0];
  public boolean hasNull;

  BytesColumn(Codec codec) {
    super(codec);
  }

  @Override
  void decode(int from) throws Unreadable {
    if (pages.encoding != Pages.PLAIN) {
      throw new Unreadable("texts have another encoding than ours");
    }
    if (starts.length < count) {
      starts = new int[count];
    }
    bytes = pages.bytes;
    hasNull = !levels.areAllMost;
    int end = walk(bytes, from, pages.to, hasNull ? levels.values : null, (byte) 1, starts, count);
    if (end != pages.to) {
      throw Pages.broken();
    }
  }

  /** Note where values begin; those whose level is not {@code most} are null. */
  static int walk(
      byte[] bytes, int at, int to, byte[] levels, byte most, int[] starts, int count)
      throws Unreadable {
    for (int i = 0; i < count; i++) {
      if (levels != null && levels[i] != most) {
        starts[i] = NULL;
        continue;
      }
      int length = to - at < 4 ? -1 : length(bytes, at + 4);
      if (length < 0 || length > to - at - 4) {
        throw Pages.broken();
      }
      starts[i] = at + 4;
      at += 4 + length;
    }
    return at;
  }

  /** Of the value that begins at {@code start}. */
  public static int length(byte[] bytes, int start) {
    return (int) LongColumn.INT.get(bytes, start - 4);
  }
}
