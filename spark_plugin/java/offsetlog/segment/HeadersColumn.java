package offsetlog.segment;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The headers of all rows of a row group: which elements each row has, and where their names and
 * values begin.
 *
 * <p>Invariants: names and values tell the same lists; row {@code r} has the elements {@code
 * [firsts[r], firsts[r + 1])}; no element is null, and names are UTF-8.
 */
public final class HeadersColumn {
  private static final byte NO_LIST = 0;
  private static final byte EMPTY = 1;
  private static final byte NO_ELEMENT = 2;
  private static final byte PRESENT = 4;

  /** What is held of each entry besides its bytes: levels, shape and start. */
  private static final long ENTRY_BYTES = 8;

  private static final long HIGHEST_BITS = 0x8080808080808080L;

  public int[] firsts = new int[1];
  public boolean[] isNull = new boolean[0];

  public final Leaf names;
  public final Leaf values;

  /** The next row of the row group. */
  public int row;

  private int rows;

  /** One of the two: the bytes of all its pages, and where those of an element begin. */
  public static final class Leaf {
    private final Pages pages;
    private final Levels repetitions = new Levels();
    private final Levels definitions = new Levels();
    public byte[] bytes = new byte[0];
    public int[] starts = new int[0];
    private byte[] shape = new byte[0];
    private int entries;
    private int elements;

    private final boolean isText;

    private Leaf(Codec codec, boolean isText) {
      pages = new Pages(codec);
      this.isText = isText;
    }

    private void begin(byte[] data, long base, Footer.Chunk chunk, Unfolding unfolding)
        throws Unreadable {
      int from = (int) (chunk.start() - base);
      pages.begin(data, from, (int) (chunk.end() - base), chunk, unfolding);
      unfolding.hold(pages.room() + pages.unfolded() + ENTRY_BYTES * chunk.values());
    }

    /** Read all pages. The shape has for each entry its definition, and whether a row begins. */
    private void read() throws Unreadable {
      entries = 0;
      elements = 0;
      int filled = 0;
      while (pages.hasNext()) {
        pages.header();
        pages.load();
        int count = pages.count;
        int at = repetitions.read(pages.bytes, pages.from, pages.to, 1, count);
        at = definitions.read(pages.bytes, at, pages.to, PRESENT, count);
        int length = pages.to - at;
        if (pages.encoding != Pages.PLAIN || (long) filled + length > Pages.MAX_BYTES) {
          throw new Unreadable("headers have another encoding than ours, or are very large");
        }
        bytes = room(bytes, filled, filled + length);
        System.arraycopy(pages.bytes, at, bytes, filled, length);
        shape = room(shape, entries, entries + count);
        if (starts.length < elements + count) {
          starts = Arrays.copyOf(starts, Math.max(elements + count, 2 * starts.length));
        }
        filled = walk(filled, filled + length, count);
      }
    }

    private int walk(int at, int to, int count) throws Unreadable {
      boolean isAscii = !isText || areAscii(bytes, at, to);
      for (int i = 0; i < count; i++) {
        byte definition = definitions.areAllMost ? PRESENT : definitions.values[i];
        boolean begins = !repetitions.areAllMost && repetitions.values[i] == 0;
        shape[entries++] = (byte) (Math.min(definition, 3) | (begins ? 8 : 0));
        if (definition < NO_ELEMENT) {
          continue;
        }
        if (definition == NO_ELEMENT) {
          throw new Unreadable("a header is null");
        }
        starts[elements] = BytesColumn.NULL;
        if (definition == PRESENT) {
          int length = to - at < 4 ? -1 : BytesColumn.length(bytes, at + 4);
          if (length < 0 || length > to - at - 4) {
            throw Pages.broken();
          }
          starts[elements] = at + 4;
          at += 4 + length;
          if (!isAscii && !isUtf8(bytes, at - length, at)) {
            throw new Unreadable("the name of a header is not UTF-8");
          }
        }
        elements++;
      }
      if (at != to) {
        throw Pages.broken();
      }
      return at;
    }

    /** Whether no byte has its highest bit: then all that is in them is text. */
    private static boolean areAscii(byte[] bytes, int from, int to) {
      int at = from;
      for (; at + Long.BYTES <= to; at += Long.BYTES) {
        if (((long) LongColumn.LONG.get(bytes, at) & HIGHEST_BITS) != 0) {
          return false;
        }
      }
      for (; at < to; at++) {
        if (bytes[at] < 0) {
          return false;
        }
      }
      return true;
    }

    private static boolean isUtf8(byte[] bytes, int from, int to) {
      try {
        StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes, from, to - from));
        return true;
      } catch (CharacterCodingException wrong) {
        return false;
      }
    }

    private static byte[] room(byte[] old, int filled, int needed) {
      if (needed <= old.length) {
        return old;
      }
      byte[] out = new byte[Math.max(needed, Math.min(2 * old.length, Pages.MAX_BYTES))];
      System.arraycopy(old, 0, out, 0, filled);
      return out;
    }
  }

  HeadersColumn(Codec codec) {
    names = new Leaf(codec, true);
    values = new Leaf(codec, false);
  }

  void begin(
      byte[] data, long base, Footer.Chunk name, Footer.Chunk value, int rows, Unfolding unfolding)
      throws Unreadable {
    names.begin(data, base, name, unfolding);
    values.begin(data, base, value, unfolding);
    this.rows = rows;
  }

  /** Decode all of them. */
  void load() throws Unreadable {
    names.read();
    values.read();
    int entries = names.entries;
    if (!Arrays.equals(names.shape, 0, entries, values.shape, 0, values.entries)) {
      throw new Unreadable("names and values of headers differ in number");
    }
    if (firsts.length < rows + 1) {
      firsts = new int[rows + 1];
      isNull = new boolean[rows];
    }
    int reached = -1;
    int elements = 0;
    for (int i = 0; i < entries; i++) {
      byte shape = names.shape[i];
      int definition = shape & 7;
      if ((shape & 8) != 0) {
        if (++reached >= rows) {
          throw Pages.broken();
        }
        firsts[reached] = elements;
        isNull[reached] = definition == NO_LIST;
      } else if (reached < 0 || definition <= EMPTY || elements == firsts[reached]) {
        // An element that follows one of the same row.
        throw Pages.broken();
      }
      if (definition > NO_ELEMENT) {
        elements++;
      }
    }
    if (reached != rows - 1) {
      throw Pages.broken();
    }
    firsts[rows] = elements;
    row = 0;
  }

  int available() {
    return rows - row;
  }

  void skip(int count) {
    row += count;
  }
}
