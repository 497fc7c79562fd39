package offsetlog.segment;

/**
 * DELTA_BINARY_PACKED: a first number, and blocks of differences of few bits.
 *
 * <p>Invariants: nothing outside {@code [at, end)} is read, and no more than {@code count} numbers
 * are written.
 */
final class Deltas {
  /** What a block and a part of it have a multiple of. */
  private static final int BLOCK = 128;

  private static final int PART = 32;

  private final byte[] data;
  private final int end;
  private int at;

  private Deltas(byte[] data, int at, int end) {
    this.data = data;
    this.at = at;
    this.end = end;
  }

  static void read(byte[] data, int at, int end, long[] out, int count) throws Unreadable {
    new Deltas(data, at, end).read(out, count);
  }

  private void read(long[] out, int count) throws Unreadable {
    long block = varint();
    long parts = varint();
    if (block <= 0 || block > 1 << 20 || parts <= 0 || parts > block || block % parts != 0) {
      throw Pages.broken();
    }
    int part = (int) (block / parts);
    if (varint() != count || block % BLOCK != 0 || part % PART != 0) {
      throw Pages.broken();
    }
    long value = zigzag();
    int done = 0;
    if (count > 0) {
      out[done++] = value;
    }
    while (done < count) {
      long least = zigzag();
      int widths = at;
      take((int) parts);
      for (int i = 0; i < parts && done < count; i++) {
        int width = data[widths + i];
        if (width < 0 || width > 64) {
          throw Pages.broken();
        }
        int from = at;
        take(width * part / 8);
        for (int j = 0; j < part && done < count; j++) {
          value += least + bits(from, (long) j * width, width);
          out[done++] = value;
        }
      }
    }
  }

  private long bits(int from, long first, int width) {
    long out = 0;
    for (int got = 0; got < width; ) {
      long bit = first + got;
      int inByte = (int) (bit & 7);
      int some = Math.min(8 - inByte, width - got);
      long piece = ((data[from + (int) (bit >>> 3)] & 0xFF) >>> inByte) & ((1L << some) - 1);
      out |= piece << got;
      got += some;
    }
    return out;
  }

  private void take(int bytes) throws Unreadable {
    if (bytes > end - at) {
      throw Pages.broken();
    }
    at += bytes;
  }

  private long zigzag() throws Unreadable {
    long raw = varint();
    return (raw >>> 1) ^ -(raw & 1);
  }

  private long varint() throws Unreadable {
    long out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      take(1);
      int part = data[at - 1];
      out |= (long) (part & 0x7F) << shift;
      if (part >= 0) {
        if (shift == 63 && part > 1) {
          throw Pages.broken();
        }
        return out;
      }
    }
    throw Pages.broken();
  }
}
