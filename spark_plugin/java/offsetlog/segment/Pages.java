package offsetlog.segment;

/**
 * The pages of one column of a row group that was checked, one decompressed at a time.
 *
 * <p>Invariants: pages lie within their column; no page unfolds to more than {@link #MAX_BYTES} or
 * has more values than its column has left; what is not a plain page of version 1 is unreadable.
 */
final class Pages {
  /** A larger page is left to Python. Ours have a megabyte, and more only for long records. */
  static final int MAX_BYTES = 1 << 28;

  static final int PLAIN = 0;
  static final int DELTA_BINARY_PACKED = 5;
  private static final int RLE = 3;

  private final Codec codec;
  private byte[] data;
  private int at;
  private int end;
  private int codecNumber;
  private long left;
  private byte[] own = new byte[0];
  private int size;
  private int stored;

  /** The page: bytes {@code [from, to)} hold its levels and values. */
  byte[] bytes;

  int from;
  int to;
  int count;
  int encoding;

  Pages(Codec codec) {
    this.codec = codec;
  }

  /** Of bytes {@code [start, end)}, where so many values are. */
  void begin(byte[] data, int start, int end, int codecNumber, long values) {
    this.data = data;
    this.at = start;
    this.end = end;
    this.codecNumber = codecNumber;
    this.left = values;
    this.bytes = null;
    this.count = 0;
  }

  boolean hasNext() {
    return left > 0;
  }

  /** The next page's header; {@link #load} or another header follows. */
  void header() throws Unreadable {
    if (at >= end || left <= 0) {
      throw broken();
    }
    Compact in = new Compact(data, at, end);
    int kind = -1;
    size = -1;
    stored = -1;
    count = -1;
    encoding = -1;
    int outer = in.enter();
    while (in.field()) {
      switch (in.id) {
        case 1 -> kind = in.i32();
        case 2 -> size = in.i32();
        case 3 -> stored = in.i32();
        case 5 -> dataPage(in);
        default -> in.skip(in.type);
      }
    }
    in.leave(outer);
    at = in.position();
    if (kind != 0 || count < 0) {
      throw new Unreadable("it has pages of another kind than ours");
    }
    if (size < 0 || size > MAX_BYTES || stored < 0 || stored > end - at || count > left) {
      throw broken();
    }
    left -= count;
    at += stored;
    if (left == 0 && at != end) {
      throw broken();
    }
  }

  private void dataPage(Compact in) throws Unreadable {
    int outer = in.enter();
    while (in.field()) {
      switch (in.id) {
        case 1 -> count = in.i32();
        case 2 -> encoding = in.i32();
        case 3, 4 -> {
          if (in.i32() != RLE) {
            throw new Unreadable("the levels of a page have another encoding than ours");
          }
        }
        default -> in.skip(in.type);
      }
    }
    in.leave(outer);
  }

  /** Decompress the page whose header was read. */
  void load() throws Unreadable {
    int start = at - stored;
    if (codecNumber == Codec.PLAIN) {
      if (size != stored) {
        throw broken();
      }
      bytes = data;
      from = start;
      to = at;
      return;
    }
    if (own.length < size) {
      own = new byte[Math.max(size, Math.min(2 * own.length, 1 << 21))];
    }
    codec.decompress(codecNumber, data, start, stored, own, size);
    bytes = own;
    from = 0;
    to = size;
  }

  static Unreadable broken() {
    return new Unreadable("the pages of a column do not add up");
  }
}
