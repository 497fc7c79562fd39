package offsetlog.segment;

/**
 * A column of a row group without repetitions: its rows, a page at a time.
 *
 * <p>Invariants: {@link #row} is within the page that is decoded; rows before it were given, and
 * those of a page are there until the next page is asked for.
 */
public abstract class Column {
  protected final Pages pages;
  protected final Levels levels = new Levels();
  protected boolean nullable;

  /** The next row, of the {@link #count} of this page. */
  public int row;

  protected int count;

  Column(Codec codec) {
    pages = new Pages(codec);
  }

  void begin(
      byte[] data,
      int start,
      int end,
      Footer.Chunk chunk,
      int rows,
      boolean nullable,
      Unfolding unfolding)
      throws Unreadable {
    if (chunk.values() != rows) {
      throw Pages.broken();
    }
    pages.begin(data, start, end, chunk, unfolding);
    unfolding.hold(pages.room());
    this.nullable = nullable;
    row = 0;
    count = 0;
  }

  /** How many rows are there without another page; at least one. */
  int available() throws Unreadable {
    while (row == count) {
      pages.header();
      load();
    }
    return count - row;
  }

  /** Pass over rows; pages that have no others are not decompressed. */
  void skip(int rows) throws Unreadable {
    while (rows > count - row) {
      rows -= count - row;
      pages.header();
      row = 0;
      count = pages.count;
      if (rows >= count) {
        row = count;
        rows -= count;
      } else {
        load();
      }
    }
    row += rows;
  }

  final void load() throws Unreadable {
    pages.load();
    row = 0;
    count = pages.count;
    int from = pages.from;
    levels.areAllMost = true;
    if (nullable) {
      from = levels.read(pages.bytes, from, pages.to, 1, count);
    }
    decode(from);
  }

  /** The values of the page, which begin at {@code from}. */
  abstract void decode(int from) throws Unreadable;
}
