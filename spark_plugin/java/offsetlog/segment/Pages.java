package offsetlog.segment;

/**
 * The pages of one column of a row group that was checked, one decompressed at a time.
 *
 * <p>Invariants: the headers of all pages are looked at before the first page is decompressed, and say
 * what the column says; pages lie within their column, have values, and unfold to {@link #MAX_BYTES}
 * at the most; what is not a plain page of version 1 is unreadable.
 */
final class Pages {
  /** A larger page is left to Python. Ours have a megabyte, and more only for long records. */
  static final int MAX_BYTES = 1 << 28;

  static final int PLAIN = 0;
  static final int DELTA_BINARY_PACKED = 5;
  private static final int RLE = 3;
  private static final long PAGE = Compact.fields(1, 2, 3, 5);
  private static final long DATA_PAGE = Compact.fields(1, 2, 3, 4);

  private final Codec codec;
  private byte[] data;
  private int at;
  private int end;
  private int codecNumber;
  private long left;
  private byte[] own = new byte[0];
  private int size;
  private int stored;
  private long unfolded;
  private int largest;

  /** The page: bytes {@code [from, to)} hold its levels and values. */
  byte[] bytes;

  int from;
  int to;
  int count;
  int encoding;

  Pages(Codec codec) {
    this.codec = codec;
  }

  /** Of bytes {@code [start, end)}, where a column is; what its pages come to is counted. */
  void begin(byte[] data, int start, int end, Footer.Chunk chunk, Unfolding unfolding)
      throws Unreadable {
    this.data = data;
    this.at = start;
    this.end = end;
    this.codecNumber = chunk.codec();
    unfolded = 0;
    largest = 0;
    long values = 0;
    while (at < end) {
      read();
      unfolding.add(size, count);
      unfolded += size;
      largest = Math.max(largest, size);
      values += count;
    }
    if (values != chunk.values()) {
      throw broken();
    }
    this.at = start;
    this.left = values;
    this.bytes = null;
    this.count = 0;
  }

  /** Bytes of all pages, once they are decompressed. */
  long unfolded() {
    return unfolded;
  }

  /** Bytes that are taken for the largest page. */
  int room() {
    return codecNumber == Codec.PLAIN ? 0 : largest;
  }

  boolean hasNext() {
    return left > 0;
  }

  /** The next page's header; {@link #load} or another header follows. */
  void header() throws Unreadable {
    read();
    left -= count;
  }

  private void read() throws Unreadable {
    if (at >= end) {
      throw broken();
    }
    Compact in = new Compact(data, at, end);
    int kind = -1;
    in.enter();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> kind = in.i32();
        case 2 -> size = in.count32();
        case 3 -> stored = in.count32();
        case 4 -> in.i32();
        case 5 -> dataPage(in);
        default -> throw new Unreadable("it has pages of another kind than ours");
      }
    }
    in.leave(PAGE);
    at = in.position();
    if (kind != 0) {
      throw new Unreadable("it has pages of another kind than ours");
    }
    if (size > MAX_BYTES || stored > end - at || count == 0) {
      throw broken();
    }
    at += stored;
  }

  private void dataPage(Compact in) throws Unreadable {
    in.enterField();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> count = in.count32();
        case 2 -> encoding = in.count32();
        case 3, 4 -> {
          if (in.i32() != RLE) {
            throw new Unreadable("the levels of a page have another encoding than ours");
          }
        }
        case 5 -> Footer.statistics(in);
        default -> throw Compact.unknown();
      }
    }
    in.leave(DATA_PAGE);
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
